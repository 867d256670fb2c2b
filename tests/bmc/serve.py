"""The BMC emulator as a process. SIMULATED machine, real HTTP(S).

    python tests/bmc/serve.py --listen 127.0.0.1:8443 --cert bmc.pem --state bmc.json --vendor dell

Prints one line of JSON (url, control, username) when it listens; ends at SIGTERM or SIGINT. The password
comes from a file, never from the command line. --state is read at the start and written after every change.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import threading
from pathlib import Path

from bmc_control import Control
from bmc_emulator import PASSWORD, SPEED, USER, BmcEmulator


def main() -> int:
    """Serve until a signal."""
    asked = _arguments()
    host, _, port = asked.listen.rpartition(":")
    password = asked.password_file.read_text().strip() if asked.password_file else PASSWORD
    bmc = BmcEmulator(
        asked.vendor,
        cpu=asked.cpu,
        certificate=asked.cert,
        address=host.strip("[]"),
        port=int(port),
        name=asked.name,
        username=asked.username,
        password=password,
        speed=asked.speed,
    )
    if asked.state is not None:
        _keep(bmc, asked.state)
    if asked.on_reset is not None:
        bmc.on_reset = lambda kind: _tell(asked.on_reset, kind)
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    with bmc, Control(bmc, asked.control) as side:
        print(json.dumps({"url": bmc.url, "control": side.url, "username": bmc.username}), flush=True)
        done.wait()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A simulated Redfish BMC")
    parser.add_argument("--listen", default="127.0.0.1:0", help="ADDRESS:PORT; port 0 takes a free one")
    parser.add_argument("--cert", type=Path, help="PEM file with certificate and key; without it plain HTTP")
    parser.add_argument("--state", type=Path, help="JSON file that keeps the machine's state")
    parser.add_argument("--vendor", default="generic", choices=("dell", "supermicro", "hpe", "generic"))
    parser.add_argument("--cpu", choices=("amd", "intel"), help="where the vendor has both")
    parser.add_argument("--name", default="bmc")
    parser.add_argument("--username", default=USER)
    parser.add_argument("--password-file", type=Path)
    parser.add_argument("--speed", type=float, default=SPEED, help="BMC seconds in a second")
    parser.add_argument("--control", type=int, default=0, help="port of the side door on 127.0.0.1")
    parser.add_argument("--on-reset", type=Path, help="program that is started with the ResetType")
    return parser.parse_args()


def _keep(bmc: BmcEmulator, path: Path) -> None:
    """Load the state, and save it whenever something may have changed."""
    if path.exists():
        bmc.machine.load_json(json.loads(path.read_text()))
    lock = threading.Lock()

    def save() -> None:
        with lock:
            new = path.with_suffix(".new")
            with bmc.lock:
                new.write_text(json.dumps(bmc.machine.to_json(), indent=1))
            new.replace(path)

    bmc.on_change = save
    save()


def _tell(program: Path, kind: str) -> None:
    subprocess.Popen([str(program), kind])


if __name__ == "__main__":
    raise SystemExit(main())
