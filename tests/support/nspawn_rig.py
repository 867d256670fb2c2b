"""Hosts with a systemd of their own, for tests marked `root`: systemd-nspawn on one shared Debian root.

    with systemd_hosts("a", "b") as rig:
        rig["a"].run(["systemctl", "is-system-running"]).stdout

Every host has an overlay on a tmpfs, a network namespace of its own and the project read-only at /opt/repo
with its environment /opt/nodegate; `Making` leaves those away and adds files. Nothing touches this machine's
network, mounts or units, and nothing is left when the block ends. The hosts' kernel is this machine's: its
clock, /proc/sys/vm and kernel log too.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nspawn_root import PREMADE, binds, nspawn_root

LIFE = Path(__file__).with_name("nspawn_life.py")
BOOT_WITHIN_S = 240.0
RUN_WITHIN_S = 60.0
END_WITHIN_S = 20.0
#: The networks that every host is on: name of the link inside, and the first three numbers of its addresses.
NETWORKS = {"mgmt": "198.51.100", "data": "203.0.113"}
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
#: What forks as a host is entered, not nsenter. As a host goes down, systemd stops its processes for a
#: moment; nsenter stops with its child, is never woken, and holds the reboot until that child is reaped.
_WAIT = ("timeout", "--foreground", "0")
_PATH = "PATH=/opt/nodegate/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Network:
    """Bridges in a network namespace of their own; it is gone with the process that holds it."""

    def __init__(self) -> None:
        """Make the namespace and a bridge for each network; this side has the address .1 in each."""
        own = Path("/proc/self/ns/net").readlink()
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]
        )
        self.pid = self._holder.pid
        wait_for("a namespace", lambda: Path(f"/proc/{self.pid}/ns/net").readlink() != own, 10)
        self.ip("link", "set", "lo", "up")
        for name, prefix in NETWORKS.items():
            self.ip("link", "add", f"br-{name}", "type", "bridge")
            self.ip("addr", "add", f"{prefix}.1/24", "dev", f"br-{name}")
            self.ip("link", "set", f"br-{name}", "up")

    def words(self, argv: Sequence[str]) -> list[str]:
        """A command line that runs `argv` here: Ansible, curl, an agent without a host."""
        return ["nsenter", "-t", str(self.pid), "-n", "--", *argv]

    def run(self, argv: Sequence[str], timeout: float = RUN_WITHIN_S) -> subprocess.CompletedProcess[str]:
        """Run a command in the namespace, with this machine's files."""
        return subprocess.run(self.words(argv), capture_output=True, text=True, timeout=timeout, check=False)

    def ip(self, *words: str) -> None:
        """`ip` with these words, which must succeed."""
        done = self.run(["ip", *words])
        assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"

    def close(self) -> None:
        """End it."""
        self._holder.kill()
        self._holder.wait(10)


@dataclass(frozen=True)
class Making:
    """How a host is made: folders whose content lies over the root, and whether the project is there."""

    seeds: Sequence[Path] = ()
    premade: bool = True


class Host:
    """One host. It is booted by `boot` and off after `close`."""

    def __init__(
        self,
        name: str,
        number: int,
        network: Network,
        folder: Path,
        more: Sequence[str],
        making: Making | None = None,
    ) -> None:
        """Nothing runs yet. `more`: further words for systemd-nspawn."""
        self._making = making or Making()
        self.name = name
        self.addresses = {link: f"{prefix}.{10 + number}" for link, prefix in NETWORKS.items()}
        self.console = folder / f"{name}.console"
        self._ports = {link: f"{link}{number}" for link in NETWORKS}
        self.network = network
        self._folder = folder / name
        self._more = more
        self._life: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to boot; `wait_booted` waits for it."""
        self._folder.mkdir()
        life = {
            "name": self.name,
            "group": f"{os.getpid()}-{self.name}-{uuid.uuid4().hex[:8]}",
            "root": str(nspawn_root()),
            "folder": str(self._folder),
            "seeds": [str(seed) for seed in self._making.seeds],
            "removed": [] if self._making.premade else [path.lstrip("/") for path in PREMADE],
            "binds": binds() if self._making.premade else [],
            "network_pid": self.network.pid,
            "links": [
                {
                    "name": link,
                    "port": self._ports[link],
                    "bridge": f"br-{link}",
                    "address": f"{address}/24",
                }
                for link, address in self.addresses.items()
            ],
            # nspawn takes it from the system inside; the agent's only privilege must be there to be given.
            "more": ["--capability=CAP_SYSLOG", *self._more],
        }
        words = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "--propagation", "private"]
        with self.console.open("ab") as console:
            self._life = subprocess.Popen(
                [*words, sys.executable, str(LIFE), json.dumps(life)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )

    @property
    def leader(self) -> int:
        """PID 1 of the host as this machine numbers it now, whoever rebooted it; 0 while there is none."""
        return _leader(self._life.pid) if self._life is not None else 0

    def wait_booted(self, other_than: int = 0) -> None:
        """Wait until systemd has started everything that it starts at boot."""
        wait_for(f"{self.name} to boot", lambda: self._booted(other_than), BOOT_WITHIN_S)

    def _booted(self, other_than: int) -> bool:
        assert self._life is not None
        if self._life.poll() is not None:
            text = self.console.read_text(errors="replace")
            raise AssertionError(f"{self.name} ended with {self._life.returncode}:\n{text[-3000:]}")
        leader = self.leader
        if not leader or leader == other_than:
            return False
        return self.run(["systemctl", "is-system-running"]).stdout.strip() in ("running", "degraded")

    def words(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
        """A command line of this machine that runs `argv` in the host as root, without this environment."""
        variables = [f"{key}={value}" for key, value in (environment or {}).items()]
        enter = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "--no-fork", "--", *_WAIT]
        return [*enter, "env", "-i", _PATH, "LANG=C.UTF-8", "HOME=/root", *variables, *argv]

    def run(
        self,
        argv: Sequence[str],
        timeout: float = RUN_WITHIN_S,
        *,
        input: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the host as root; its exit status is the caller's to look at."""
        return subprocess.run(
            self.words(argv, environment),
            input=input or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )

    def must(self, argv: Sequence[str], timeout: float = RUN_WITHIN_S, **more: str) -> str:
        """Run a command that has to succeed; its output."""
        done = self.run(argv, timeout, **more)  # type: ignore[arg-type]
        assert done.returncode == 0, f"{self.name}: {' '.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file in the host, with its folders."""
        self.must(["install", "-D", "-m", f"{mode:04o}", "/dev/stdin", path], input=text or "\n")

    def read(self, path: str) -> str:
        """A file of the host."""
        return self.must(["cat", path])

    def journal(self, unit: str, *more: str) -> str:
        """Messages of one unit and about it."""
        self.must(["journalctl", "--sync"])  # what a unit has just said may still be on its way
        return self.must(["journalctl", "--no-pager", "-o", "cat", "-u", unit, *more])

    def reboot(self) -> float:
        """Reboot as an operator would; seconds until everything is started again."""
        began_s, before = time.monotonic(), self.leader
        self.run(["systemctl", "reboot"])
        self.wait_booted(other_than=before)
        return time.monotonic() - began_s

    def reset(self) -> None:
        """Reboot as by a BMC: at once, and nobody waits here until it is started again."""
        before = self.leader
        while self.leader == before:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.run(["systemctl", "reboot", "--force"], 10)
            time.sleep(0.1)

    def connect(self, port: int, address: str = "127.0.0.1", timeout: float = 10.0) -> socket.socket:
        """A TCP connection from within the host, for this process: a socket stays in its network. OSError."""
        made: list[socket.socket] = []

        def enter() -> None:
            descriptor = os.open(f"/proc/{self.leader}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:  # of this thread alone, which ends with that
                if not _libc.setns(descriptor, CLONE_NEWNET):
                    made.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
            finally:
                os.close(descriptor)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if not made:
            raise ConnectionError(f"{self.name}: its network cannot be entered")
        made[0].settimeout(timeout)
        try:
            made[0].connect((address, port))
        except OSError:
            made[0].close()
            raise
        return made[0]

    def get(self, port: int, path: str) -> tuple[int, bytes]:
        """One HTTP request from within the host; status 0 when nothing answers."""
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.sock = self.connect(port)
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def cut(self, link: str) -> None:
        """Pull the cable of a link, at the other end: the host keeps its address and loses the carrier."""
        self.network.ip("link", "set", self._ports[link], "down")

    def heal(self, link: str) -> None:
        """Plug it in again."""
        self.network.ip("link", "set", self._ports[link], "up")

    def close(self) -> None:
        """Switch it off, at once: as a test ends, nobody waits for an orderly end."""
        if self._life is None:
            return
        leader = _leader(self._life.pid)
        self._life.terminate()
        if leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)
        try:
            self._life.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._life.kill()
            self._life.wait(10)


@contextlib.contextmanager
def systemd_hosts(
    *names: str, more: Sequence[str] = (), makings: Mapping[str, Making] | None = None
) -> Iterator[dict[str, Host]]:
    """Boot the hosts, all at once, and switch them off at the end."""
    nspawn_root()
    with contextlib.ExitStack() as ends, tempfile.TemporaryDirectory(prefix="nodegate-hosts-") as folder:
        network = Network()
        ends.callback(network.close)
        made = makings or {}
        hosts = {
            name: Host(name, i, network, Path(folder), more, made.get(name)) for i, name in enumerate(names)
        }
        for host in hosts.values():
            ends.callback(host.close)
            host.start()
        for host in hosts.values():
            host.wait_booted()
        yield hosts
        ends.close()  # before the folder that they are mounted on


def wait_for(what: str, probe: object, patience_s: float = 60.0) -> None:
    """Ask until the answer is true."""
    assert callable(probe)
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        if probe():
            return
        time.sleep(0.05)
    raise AssertionError(f"waited {patience_s:g} s in vain for {what}")


def _leader(life: int) -> int:
    """PID 1 of the host as this machine numbers it, 0 while there is none: a grandchild of its life."""
    for nspawn in _children(life):
        for child in _children(nspawn):
            if _inner_pid(child) == 1:
                return child
    return 0


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _inner_pid(pid: int) -> int:
    """The number of a process in its innermost PID namespace if that is not this one, else 0."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return int(numbers[-1]) if len(numbers) > 1 else 0
