"""sushy-emulator (OpenStack) on libvirt's test driver: a Redfish BMC that is not ours.

    with sushy_bmc(tmp_path) as bmc:
        bmc.seed_bios({"ProcCStates": "Enabled"})
        ... bmc.url, bmc.ca, bmc.username, bmc.password, bmc.system ...

Needs root where python3-libvirt is missing; its environment lies in the cache folder of the tests. What it
does not model (staged settings, running tasks, sessions, ETags, firmware inventory) is what tests/bmc is for.
"""

from __future__ import annotations

import fcntl
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from nspawn_root import CACHE, REPOSITORY
from ports import free_port
from redfish_server import make_certificates

VERSION = "2.2.0"
PYTHON = "/usr/bin/python3"
USERNAME, PASSWORD = "sushy-writer", "Sushy-Pa55word-of-BMC"
START_S = 60.0
INSTALL_S = 600
LAUNCHER = Path(__file__).with_name("sushy_launcher.py")


@dataclass
class SushyBmc:
    """A running emulator with one system, powered on."""

    url: str
    ca: Path
    log: Path
    system: str = ""
    username: str = USERNAME
    password: str = field(default=PASSWORD, repr=False)

    def get(self, path: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.get(path).raise_for_status().json())

    def bios(self) -> dict[str, Any]:
        """The current attributes."""
        return dict(self.get(f"/redfish/v1/Systems/{self.system}/BIOS")["Attributes"])

    def seed_bios(self, attributes: dict[str, str]) -> None:
        """Give the machine these attributes too; sushy takes any name and applies it at once."""
        with self.client() as client:
            path = f"/redfish/v1/Systems/{self.system}/BIOS/Settings"
            client.patch(path, json={"Attributes": attributes}).raise_for_status()

    def client(self) -> httpx.Client:
        trust = ssl.create_default_context(cafile=str(self.ca))
        pair = (self.username, self.password)
        return httpx.Client(base_url=self.url, auth=pair, verify=trust, timeout=20, trust_env=False)


@contextmanager
def sushy_bmc(folder: Path) -> Iterator[SushyBmc]:
    """Start one; its certificate is signed by `ca` for 127.0.0.1."""
    python = sushy_environment() / "bin" / "python"
    certificates = make_certificates(folder)
    port = free_port()
    log = folder / "sushy.log"
    bmc = SushyBmc(f"https://127.0.0.1:{port}", certificates.ca, log)
    config = _config(folder, python, certificates.here, port)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(python), str(LAUNCHER), "--config", str(config)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait(bmc, process)
        yield bmc
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def sushy_environment() -> Path:
    """The environment, made if it is not there; one test run makes it, others wait for that."""
    home = CACHE / f"sushy-{VERSION}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "sushy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _need_packages()
        if not (home / "complete").is_file():
            shutil.rmtree(home, ignore_errors=True)
            # The system's packages too: libvirt's module comes from the distribution.
            _run(PYTHON, "-m", "venv", "--system-site-packages", home)
            _run(
                home / "bin" / "pip",
                "install",
                "--disable-pip-version-check",
                "-q",
                f"sushy-tools=={VERSION}",
            )
            (home / "complete").touch()
    return home


def _need_packages() -> None:
    """Debian's modules; there is no command by which .ci/need could see them."""
    for module, package in (("libvirt", "python3-libvirt"), ("ensurepip", "python3-venv")):
        if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode:
            _run("bash", REPOSITORY / ".ci" / "need", f"python-module-{module}:{package}")


def _run(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=INSTALL_S)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command[:3]))} failed: {(done.stderr or done.stdout)[-2000:]}"
        )


def _config(folder: Path, python: Path, certificate: Path, port: int) -> Path:
    code = "import bcrypt, sys; print(bcrypt.hashpw(sys.stdin.buffer.read(), bcrypt.gensalt(4)).decode())"
    hashed = subprocess.run(
        [str(python), "-c", code], input=PASSWORD.encode(), capture_output=True, check=True
    ).stdout.decode()
    users = folder / "sushy.htpasswd"
    users.write_text(f"{USERNAME}:{hashed.strip()}\n")
    config = folder / "sushy.conf"
    settings = {
        "SUSHY_EMULATOR_LISTEN_IP": "127.0.0.1",
        "SUSHY_EMULATOR_LISTEN_PORT": port,
        "SUSHY_EMULATOR_SSL_CERT": str(certificate),
        "SUSHY_EMULATOR_SSL_KEY": str(certificate),
        "SUSHY_EMULATOR_AUTH_FILE": str(users),
        "SUSHY_EMULATOR_FEATURE_SET": "full",
        "SUSHY_EMULATOR_LIBVIRT_URI": "test:///default",
        "SUSHY_EMULATOR_STATE_DIR": str(folder / "sushy-state"),
    }
    config.write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    return config


def _wait(bmc: SushyBmc, process: subprocess.Popen[bytes]) -> None:
    """Until the emulator lists its system."""
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise RuntimeError(f"sushy-emulator ended: {bmc.log.read_text()[-2000:]}")
        try:
            members = bmc.get("/redfish/v1/Systems")["Members"]
        except httpx.TransportError:
            time.sleep(0.1)
            continue
        bmc.system = members[0]["@odata.id"].rpartition("/")[2]
        return
    raise TimeoutError(f"sushy-emulator does not answer: {bmc.log.read_text()[-2000:]}")
