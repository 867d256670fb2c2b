"""The daemon as a process on the SIMULATED demo node with the embedded engine, for end-to-end tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

import agent

T = TypeVar("T")
NODEGATE = Path(sys.executable).with_name("nodegate")
DEMO_NODE = Path(agent.__file__).parent / "demo_nodes" / "h200-roce"
#: Generous: the machine may be busy with other tests.
PATIENCE_S = 60.0


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that were free a moment ago, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(what: str, probe: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
    """Ask `probe` until it answers with something true."""
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        found = probe()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {patience_s:.0f} s in vain for {what}")


def embedded_engine(
    gpus: Sequence[int], port: int, check_port: int, startup_s: float = 0.2
) -> dict[str, Any]:
    """An engine of the profile that is the embedded one, quick in everything."""
    command = [sys.executable, "-P", "-m", "agent.launch.embedded_engine", "--startup-s", str(startup_s)]
    return {
        "gpus": list(gpus),
        "port": port,
        "agent_check_port": check_port,
        "launch": {"command": command, "model": "simulated", "served_model_name": "simulated", "rdma": True},
        "start_deadline_s": 60,
        "stop_deadline_s": 5,
        "canary": {"period_s": 1, "deadline_s": 1, "restart_after": 5},
        "warmup": {"requests": 1, "concurrent": 1, "max_tokens": 2},
        "backoff": {"first_s": 0.2, "max_s": 1},
        "gate": {"drain_grace_s": 0.2},
    }


class DaemonProcess:
    """`nodegate run` on the demo node; `owners` are the engines and their GPU slots."""

    def __init__(
        self,
        folder: Path,
        *,
        owners: Mapping[str, Sequence[int]] | None = None,
        scenario: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
        node: Path = DEMO_NODE,
    ) -> None:
        owners = owners or {"main": range(8)}
        api_port, *ports = free_ports(1 + 2 * len(owners))
        self.api_port = api_port
        self.engine_ports = dict(zip(owners, ports[: len(owners)], strict=True))
        self.check_ports = dict(zip(owners, ports[len(owners) :], strict=True))
        self.folder = folder
        self.state_dir, self.run_dir = folder / "state", folder / "run"
        whole = yaml.safe_load((DEMO_NODE / "profile.yaml").read_text())
        whole["api"] = {"host": "127.0.0.1", "port": api_port}
        whole["engines"] = {
            name: embedded_engine(gpus, self.engine_ports[name], self.check_ports[name])
            for name, gpus in owners.items()
        }
        self.profile = merged(whole, profile or {})
        self.profile_path = folder / "profile.yaml"
        self.profile_path.write_text(yaml.safe_dump(self.profile, sort_keys=False))
        self.words = ["run", "--profile", str(self.profile_path), "--node", str(node)]
        self.words += ["--state-dir", str(self.state_dir), "--run-dir", str(self.run_dir)]
        if scenario is not None:
            path = folder / "scenario.yaml"
            path.write_text(yaml.safe_dump({"name": "test", **scenario}, sort_keys=False))
            self.words += ["--scenario", str(path)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> DaemonProcess:
        """Start it; its output goes to a file."""
        for each in (self.state_dir, self.run_dir):
            each.mkdir(exist_ok=True)
        with (self.folder / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(NODEGATE), *self.words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self

    def __enter__(self) -> DaemonProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """What it has written."""
        path = self.folder / "daemon.log"
        return path.read_text() if path.exists() else ""

    def get(self, path: str, timeout_s: float = 10.0) -> tuple[int, bytes]:
        """Status and body of a GET; status 0 when nobody answers."""
        url = f"http://127.0.0.1:{self.api_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=timeout_s) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError:
            return 0, b""

    def ready(self, engine: str | None = None) -> bool:
        """Whether /readyz is 200."""
        return self.get("/readyz" if engine is None else f"/readyz/{engine}")[0] == 200

    def status(self) -> dict[str, Any]:
        """The document of /status, empty when nobody answers."""
        code, body = self.get("/status")
        return json.loads(body) if code == 200 else {}

    def gate(self, engine: str = "main") -> dict[str, Any]:
        """One gate of /status."""
        return next((gate for gate in self.status().get("gates", []) if gate["engine"] == engine), {})

    def wait_ready(self, *engines: str) -> None:
        """Wait until the gates of these engines (default: all) are open."""
        names = engines or tuple(self.engine_ports)
        self.wait(f"open gates of {names}", lambda: all(self.ready(name) for name in names))

    def wait(self, what: str, probe: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
        """Wait for something; the daemon must be alive meanwhile."""

        def alive_probe() -> T | None:
            code = self.process.poll() if self.process else "none"
            assert code is None, f"the daemon ended with {code} while waiting for {what}\n{self.log}"
            return probe()

        try:
            return wait_for(what, alive_probe, patience_s)
        except AssertionError as vain:
            raise AssertionError(f"{vain}\n{self.get('/status')[1][:3000]!r}\n{self.log[-3000:]}") from vain

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A `nodegate` command for this daemon."""
        whole = [str(NODEGATE), *words, "--run-dir", str(self.run_dir)]
        return subprocess.run(whole, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def kill(self) -> None:
        """SIGKILL, as a crash or the OOM killer would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=30)

    def stop(self) -> int:
        """SIGTERM and wait; the exit code. SIGKILL when it does not end."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=30)
            raise

    def engine_pids(self) -> list[int]:
        """Processes of this daemon's engines, found by their state folder's ports in the command line."""
        ports = {str(port) for port in self.engine_ports.values()}
        return [
            pid
            for pid, argv in _command_lines()
            if "agent.launch.embedded_engine" in argv and ports & set(argv)
        ]


def merged(base: Any, changes: Any) -> Any:
    """`base` with `changes` laid over it, mapping by mapping."""
    if not isinstance(base, dict) or not isinstance(changes, Mapping):
        return changes
    return {**base, **{key: merged(base.get(key), value) for key, value in changes.items()}}


def _command_lines() -> list[tuple[int, list[str]]]:
    """Every process that can be read, as (pid, argv)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            raw = (entry / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        found.append((int(entry.name), raw.decode(errors="replace").rstrip("\0").split("\0")))
    return found
