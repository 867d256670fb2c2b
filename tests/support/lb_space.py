"""A machine of the load-balancer tests: a network and a process namespace that live and die with one process.

Its first process, of which all others are, is killed by the kernel when pytest ends, however that ends; and
with it everything inside is, engines that outlive their agent too. `power_off` does the same on purpose.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from daemon_rig import wait_until

CLONE_NEWNET = 0x40000000
#: The first process: the kernel itself takes away its children that have ended.
_INIT = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); signal.pause()"
#: Takes a folder away once its standard input has ended: at the end of this process, however that comes.
_JANITOR = (
    "import shutil, sys, time\n"
    "sys.stdin.read()\n"
    "for _ in range(50):\n"
    "    shutil.rmtree(sys.argv[1], ignore_errors=True)\n"
    "    time.sleep(0.1)  # whoever still wrote there is being killed\n"
    "    try: open(sys.argv[1])\n"
    "    except FileNotFoundError: break\n"
    "    except OSError: pass\n"
)
#: First three numbers of the addresses.
_LAN = "10.80.0"
T = TypeVar("T")


class Space:
    """The namespaces; `inside` runs in a thread that lives in the network, and what it opens stays there."""

    def __init__(self) -> None:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork", "--kill-child=KILL"]
        self._keeper = subprocess.Popen([*words, "--mount-proc", sys.executable, "-ISc", _INIT])
        self.pid = wait_until("the first process", lambda: next(iter(children(self._keeper.pid)), 0))
        wait_until("its program", lambda: b"-ISc" in _words(self.pid))
        #: What the pids of everything inside have in common.
        self.mark = Path(f"/proc/{self.pid}/ns/pid").stat().st_ino
        self.run("ip", "link", "set", "lo", "up")
        self._inside = ThreadPoolExecutor(1, initializer=self.enter)

    def enter(self) -> None:
        """Move the calling thread, and no other, into the network."""
        with Path(f"/proc/{self.pid}/ns/net").open() as place:
            assert ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) == 0

    def inside(self, call: Callable[[], T]) -> T:
        """Call it in here."""
        return self._inside.submit(call).result(30)

    def words(self, *words: str) -> list[str]:
        """The command line that runs another in here."""
        return ["nsenter", "-t", str(self.pid), "-n", "-p", "-m", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in here, which must succeed."""
        return subprocess.run(self.words(*words), check=True, capture_output=True, text=True, timeout=30)

    def start(self, log: IO[bytes], *words: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a program in here; what comes back stands for it, but is not to be signalled."""
        whole = {**os.environ, **env}
        return subprocess.Popen(
            self.words(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=whole
        )

    def holds(self, pid: int) -> bool:
        """Whether a process is in here."""
        try:
            return Path(f"/proc/{pid}/ns/pid").stat().st_ino == self.mark
        except OSError:
            return False

    def power_off(self) -> None:
        """All processes at once, without a last word, and the namespaces with them."""
        self._keeper.kill()
        self._keeper.wait(30)
        wait_until("nothing is left in it", lambda: not Path(f"/proc/{self.pid}").exists())

    def close(self) -> None:
        """Take it away."""
        self._inside.shutdown()
        if self._keeper.poll() is None:
            self.power_off()


@contextmanager
def folder_for_now() -> Iterator[Path]:
    """A folder that is gone afterwards, also if this process is killed."""
    name = tempfile.mkdtemp(prefix="nodegate-lb-")
    janitor = subprocess.Popen([sys.executable, "-ISc", _JANITOR, name], stdin=subprocess.PIPE)
    try:
        yield Path(name)
    finally:
        janitor.communicate()
    assert not Path(name).exists()


def lay_lan(space: Space) -> None:
    """The switch that others are cabled to, with an address of its own."""
    space.run("ip", "link", "add", "lan", "type", "bridge")
    space.run("ip", "addr", "add", f"{_LAN}.1/24", "dev", "lan")
    space.run("ip", "link", "set", "lan", "up")


def plug(switch: Space, other: Space, number: int) -> str:
    """A cable from a machine to the switch; the machine's address."""
    address, cable = f"{_LAN}.{number + 10}", f"cable{number}"
    # `netns PID` needs this machine's numbers of processes, so only the network is entered for it.
    inside = ["nsenter", "-t", str(switch.pid), "-n", "ip", "link", "add", cable, "type", "veth"]
    subprocess.run([*inside, "peer", "name", "up0", "netns", str(other.pid)], check=True, timeout=30)
    switch.run("ip", "link", "set", cable, "master", "lan", "up")
    other.run("ip", "addr", "add", f"{address}/24", "dev", "up0")
    other.run("ip", "link", "set", "up0", "up")
    return address


def unplug(switch: Space, number: int) -> None:
    """Take a cable away: nothing that dies at its other end can say so, and what is sent there is lost."""
    switch.run("ip", "link", "del", f"cable{number}")


def children(pid: int) -> list[int]:
    """Processes that a process has started and that have not ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
