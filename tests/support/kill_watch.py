"""What must hold while agents are killed: at most one engine, the same while it is well, and no false ready.

`look` is called in a tight loop through lives and deaths of the agent; the test says when another may come.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

EMBEDDED = b"agent.launch.embedded_engine"
Key = tuple[int, int]


def embedded_engines(port: int, beside: int | str = "self") -> dict[Key, str]:
    """Embedded engines of this port (their first process): pid and start, and their state.

    Those in the PID namespace of process `beside` alone.
    """
    found: dict[Key, str] = {}
    parents: dict[Key, int] = {}
    namespace = Path(f"/proc/{beside}/ns/pid").readlink()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if EMBEDDED not in words or str(port).encode() not in words:
                continue
            if (entry / "ns/pid").readlink() != namespace:
                continue
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if stat[0] not in "ZX":
            key = (int(entry.name), int(stat[19]))
            found[key], parents[key] = stat[0], int(stat[1])
    # A child that it has forked and that has not come to its own program yet is no second engine.
    pids = {pid for pid, _ in found}
    return {key: state for key, state in found.items() if parents[key] not in pids}


@dataclasses.dataclass
class Closing:
    """One gap of readiness over a kill, in seconds since the kill; None: the next kill came before."""

    answered_s: float | None = None
    ready_s: float | None = None


class KillWatch:
    """Looks at agent and engine from outside."""

    def __init__(
        self, ready: Callable[[], int], serves: Callable[[], bool], engines: Callable[[], dict[Key, str]]
    ) -> None:
        """`ready`: status of /readyz, 0 without an answer; `serves`: the engine answers a request."""
        self._ready, self._serves, self._engines = ready, serves, engines
        self.engine: Key | None = None
        self.looks = self.ready_looks = 0
        self.closings: list[Closing] = []
        self._killed_s = 0.0
        #: Set while an engine is stopped or gone by the test's own hand: then ready is a lie.
        self.out_of_order = False

    def killed(self) -> None:
        """The agent has just been killed."""
        self._killed_s = time.monotonic()
        self.closings.append(Closing())

    def may_change(self) -> None:
        """The engine has been ended by the test: another may come."""
        self.engine = None

    def look(self) -> bool:
        """One look; whether the gate is open."""
        self.looks += 1
        self._look_at_engines()
        status = self._ready()
        now_s = time.monotonic() - self._killed_s
        if self.closings and status and self.closings[-1].answered_s is None:
            self.closings[-1].answered_s = now_s
        if status != 200:
            return False
        assert not self.out_of_order, "ready, and the engine is stopped"
        if self.closings and self.closings[-1].ready_s is None:
            self.closings[-1].ready_s = now_s
        self.ready_looks += 1
        assert self._serves(), "ready, and the engine does not answer"
        if self.engine is None:
            self.engine = next(iter(self._engines()))
        return True

    def live(self, life_s: float) -> None:
        """Look again and again for a while."""
        end_s = time.monotonic() + life_s
        while time.monotonic() < end_s:
            self.look()
            time.sleep(0.01)

    def wait_ready(self, patience_s: float = 60.0) -> None:
        """Look until the gate is open."""
        end_s = time.monotonic() + patience_s
        while not self.look():
            assert time.monotonic() < end_s, f"not ready within {patience_s:g} s"
            time.sleep(0.01)

    def signal_engine(self, number: int) -> None:
        """Send a signal to the engine that serves."""
        assert self.engine is not None
        os.kill(self.engine[0], number)

    def summary(self) -> str:
        """Figures of all closings that came to readiness again."""
        whole = [(c.answered_s, c.ready_s) for c in self.closings if c.answered_s and c.ready_s]
        if not whole:
            return f"{len(self.closings)} kills"
        from_kill = [ready for _, ready in whole]
        from_answer = [ready - answered for answered, ready in whole]
        return (
            f"{len(self.closings)} kills, {len(whole)} adoptions to readiness, {self.ready_looks} of "
            f"{self.looks} looks ready; closed from the kill: {_figures(from_kill)}; "
            f"from the first answer: {_figures(from_answer)}"
        )

    def closed_s(self) -> list[float]:
        """Seconds from the first answer of each next agent to readiness."""
        return [c.ready_s - c.answered_s for c in self.closings if c.ready_s and c.answered_s]

    def forget_closing(self) -> None:
        """The last closing is no mere adoption: the engine was not well."""
        self.closings[-1] = Closing()

    def _look_at_engines(self) -> None:
        engines = self._engines()
        assert len(engines) <= 1, f"two engines: {engines}"
        if self.engine is not None:
            assert self.engine in engines, f"engine {self.engine} was well and is gone; now {engines}"


def _figures(times_s: list[float]) -> str:
    return f"median {statistics.median(times_s):.2f}, most {max(times_s):.2f} s"
