"""Two nodes as network namespaces, a management and a data link between them, each with its own agent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from daemon_rig import DaemonRig

CLONE_NEWNET = 0x40000000
ENGINE = "kimi"
API_PORT, ENGINE_PORT, MASTER_PORT, CHECK_PORT = 9470, 8000, 29501, 9471
NODES = ("node-a", "node-b")
#: Link -> first three numbers of its addresses; the fourth is the rank plus one.
LINKS = {"mgmt": "10.77.0", "data": "10.78.0"}


def ip(*words: str) -> None:
    """One `ip` command that must succeed."""
    subprocess.run(["ip", *words], check=True, timeout=30)


class NetnsPair:
    """The namespaces and their links; `cut` and `heal` act on one link at both ends."""

    def __init__(self) -> None:
        self.names = [f"ng-{os.getpid()}-{rank}" for rank in range(2)]
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for link, prefix in LINKS.items():
            first, second = self.names
            ip("-n", first, "link", "add", link, "type", "veth", "peer", "name", link, "netns", second)
            for rank, name in enumerate(self.names):
                ip("-n", name, "addr", "add", f"{prefix}.{rank + 1}/24", "dev", link)
                ip("-n", name, "link", "set", link, "up")

    def cut(self, link: str) -> None:
        """Nothing comes through any more; both ends only see that the other's carrier is gone."""
        ip("-n", self.names[0], "link", "set", link, "down")

    def heal(self, link: str) -> None:
        """As before."""
        ip("-n", self.names[0], "link", "set", link, "up")

    def close(self) -> None:
        """Take all of it away."""
        for name in self.names:
            with suppress(subprocess.SubprocessError):
                ip("netns", "del", name)


class NsRig(DaemonRig):
    """One member's daemon, on the SIMULATED demo node, in its namespace."""

    def __init__(self, folder: Path, net: NetnsPair, rank: int, key: Path) -> None:
        folder.mkdir()
        self.namespace = net.names[rank]
        super().__init__(folder, {ENGINE: list(range(8))}, node=NODES[rank])
        self.api_port, self.engine_ports, self.check_ports = (
            API_PORT,
            {ENGINE: ENGINE_PORT},
            {ENGINE: CHECK_PORT},
        )
        self.profile["api"] = {"host": "0.0.0.0", "port": API_PORT}
        self.group = {
            "rank": rank,
            "members": [
                {
                    "node": node,
                    "address": f"{LINKS['mgmt']}.{r + 1}",
                    "data_address": f"{LINKS['data']}.{r + 1}",
                }
                for r, node in enumerate(NODES)
            ],
            "key_file": str(key),
            "period_s": 0.5,
        }
        self.profile["engines"][ENGINE] |= {
            "port": ENGINE_PORT, "agent_check_port": CHECK_PORT, "group": self.group,
        }  # fmt: skip
        self.write_profile()
        self._inside = ThreadPoolExecutor(1, initializer=self._enter)

    def _enter(self) -> None:
        """Move this thread, and no other, into the namespace."""
        with Path(f"/run/netns/{self.namespace}").open() as place:
            assert ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) == 0

    def words(self, *more: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *super().words(*more)]

    def get(self, path: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
        return self._inside.submit(super().get, path, method).result()

    def agent_line(self, engine: str) -> str:
        return self._inside.submit(super().agent_line, engine).result()

    def code(self) -> int:
        """The status of /readyz/ENGINE, 0 when nobody answers."""
        return self.get(f"/readyz/{ENGINE}")[0]

    @property
    def state(self) -> str:
        """The gate's state."""
        return str(self.gate(ENGINE).get("state", ""))

    def why(self) -> str:
        """What blocks it, the first reason."""
        blocking = self.gate(ENGINE).get("blocking") or [{}]
        return str(blocking[0].get("summary", ""))

    def view(self) -> dict[str, Any]:
        """The group as this member shows it."""
        return dict(self.gate(ENGINE).get("group") or {})

    def ranks(self) -> list[int]:
        """Processes of this node's rank, by their namespace: both ranks have the same ports."""
        own = Path(f"/run/netns/{self.namespace}").stat().st_ino
        return [pid for pid in super().engine_pids() if _netns(pid) == own]

    def engine_pids(self) -> list[int]:
        return self.ranks()

    def kill_rank(self) -> None:
        """SIGKILL the rank's first process."""
        for pid in self.ranks()[:1]:
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        super().close()
        self._inside.shutdown()


def _netns(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return 0


class Watch:
    """The head's readiness over time, asked for every 20 ms by whoever waits."""

    def __init__(self, head: NsRig, told: list[str]) -> None:
        self._head, self._told = head, told

    def until(self, code: int, what: str, patience_s: float) -> float:
        """Seconds until /readyz answers so."""
        began = time.monotonic()
        while time.monotonic() - began < patience_s:
            if self._head.code() == code:
                took_s = time.monotonic() - began
                self._told.append(f"{what}: {took_s:.1f} s")
                return took_s
            time.sleep(0.02)
        raise AssertionError(f"{what}: not {code} within {patience_s:g} s: {self._head.gate(ENGINE)}")

    def never(self, code: int, seconds: float) -> None:
        """It must not answer so in all this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self._head.code() != code, self._head.gate(ENGINE)
            time.sleep(0.02)
