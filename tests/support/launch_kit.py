"""A controller with the embedded engine (or any other command) under it, on a node without GPUs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fake_sources import FakeNode

from agent.launch.controller import EngineController
from agent.launch.supervisor import Supervisor
from agent.model import EnginePhase, EngineStatus
from agent.profile_loader import LoadedProfile, profile_from_dict
from agent.sources import EngineObservation, Sources
from agent.sources.clock import LiveClock
from agent.sources.engine import EngineBoard
from agent.sources.processes import ProcessStat, process, processes

NAME = "sim"
EMBEDDED = [sys.executable, "-P", "-m", "agent.launch.embedded_engine"]
PATIENCE_S = 40.0


def engine_profile(port: int, *, mode: str = "manage", **engine: Any) -> LoadedProfile:
    """A node without GPUs and one embedded engine; keywords replace parts of the engine."""
    part: dict[str, Any] = {
        "gpus": [],
        "port": port,
        "launch": {
            "command": EMBEDDED,
            "model": "sim",
            "args": ["--startup-s", "0.05", "--token-s", "0.002"],
        },
        "canary": {"period_s": 0.4, "deadline_s": 0.4, "restart_after": 1000},
        "warmup": {"requests": 1, "concurrent": 2, "max_tokens": 2, "deadline_s": 20},
        "backoff": {"first_s": 0.2, "jitter": 0.0, "crashes": 20},
        "stop_deadline_s": 10,
        "start_deadline_s": 60,
    }
    return profile_from_dict(
        {
            "node": "cpu",
            "mode": mode,
            "gpus": {"count": 0},
            "nvlink": {"links_per_gpu": 0},
            "fabric": {"kind": "none"},
            "engines": {NAME: {**part, **engine}},
        }
    )


def launch_part(*arguments: str, **more: Any) -> dict[str, Any]:
    """The launch part of an embedded engine with further arguments."""
    return {
        "command": EMBEDDED,
        "model": "sim",
        "args": ["--startup-s", "0.05", "--token-s", "0.002", *arguments],
        **more,
    }


def bare_node() -> dict[str, Any]:
    """A node without anything."""
    return {"nvml": {"system": {}, "gpus": []}}


def bare_sources(board: EngineBoard, node: FakeNode) -> Sources:
    """A fake node's sources on real time."""
    return replace(node.sources, clock=LiveClock(), engines=board)


@dataclass
class Rig:
    """A controller under test and all that it has said."""

    controller: EngineController
    board: EngineBoard
    node: FakeNode
    statuses: list[EngineStatus] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    #: Engine, reason and last lines of every crash.
    crashes: list[tuple[str, str, Sequence[str]]] = field(default_factory=list)

    @property
    def observation(self) -> EngineObservation:
        return self.board.observe(NAME)

    @property
    def phases(self) -> list[EnginePhase]:
        """The phases one after another, repetitions left out."""
        found: list[EnginePhase] = []
        for status in self.statuses:
            if not found or found[-1] is not status.phase:
                found.append(status.phase)
        return found

    async def until(self, what: str, probe: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Wait for something, but not for ever."""
        try:
            async with asyncio.timeout(patience_s):
                while not probe():  # noqa: ASYNC110 (any condition, not only events)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(
                f"{what} did not come; {self.controller.status}; {self.controller.log_tail(20)}"
            ) from None

    async def until_phase(self, phase: EnginePhase, patience_s: float = PATIENCE_S) -> None:
        await self.until(f"phase {phase}", lambda: self.controller.status.phase is phase, patience_s)

    async def start(self) -> int:
        """Start the engine and wait until it is warm; its pid."""
        self.controller.start_engine()
        await self.until_phase(EnginePhase.WARM)
        assert self.controller.status.pid is not None
        return self.controller.status.pid

    async def relaunched(self, old: int) -> int:
        """Ask for a start whenever that is possible, as the gate does, until another process is warm."""

        def warm() -> bool:
            status = self.controller.status
            if status.phase is EnginePhase.ABSENT:
                self.controller.start_engine()
            return status.phase is EnginePhase.WARM and status.pid != old

        await self.until("a relaunch", warm)
        assert self.controller.status.pid is not None
        return self.controller.status.pid


@asynccontextmanager
async def rig(
    folder: Path,
    profile: LoadedProfile,
    *,
    supervisor: Supervisor | None = None,
    leave_running: bool = False,
    node: dict[str, Any] | None = None,
) -> AsyncIterator[Rig]:
    """A running controller; closed at the end of the block."""
    statuses: list[EngineStatus] = []
    events: list[str] = []
    crashes: list[tuple[str, str, Sequence[str]]] = []
    board = EngineBoard(events.append)
    fake = FakeNode(node or bare_node())
    controller = EngineController(
        NAME,
        profile,
        bare_sources(board, fake),
        board=board,
        on_status=statuses.append,
        state_dir=folder / "state",
        log_dir=folder / "log",
        on_crash=lambda *crash: crashes.append(crash),
        supervisor=supervisor,
    )
    running = asyncio.create_task(controller.run())
    try:
        yield Rig(controller, board, fake, statuses, events, crashes)
        assert not running.done(), f"the controller ended: {running}"
    finally:
        await controller.close(leave_running=leave_running)
        running.cancel()
        await asyncio.wait({running})
    if not leave_running:
        pids = {status.pid for status in statuses if status.pid is not None}
        assert not [left for pid in pids for left in session(pid)]


def session(pid: int) -> list[ProcessStat]:
    """The living processes of the session that `pid` leads or led."""
    return [stat for stat in processes() if stat.session == pid and not stat.dead]


def alive(pid: int) -> bool:
    """Whether a process of this number runs."""
    stat = process(pid)
    return stat is not None and not stat.dead


def wait_gone(pid: int, patience_s: float = PATIENCE_S) -> None:
    """Until nothing of the session is left."""
    _wait(lambda: not session(pid), f"the end of session {pid}", patience_s)


def wait_dead(pid: int, patience_s: float = PATIENCE_S) -> None:
    """Until one process has ended."""
    _wait(lambda: not alive(pid), f"the end of process {pid}", patience_s)


def _wait(probe: Callable[[], bool], what: str, patience_s: float) -> None:
    clock = LiveClock()
    until = clock.mono_s() + patience_s
    while not probe():
        assert clock.mono_s() < until, f"{what} did not come"
        os.sched_yield()
