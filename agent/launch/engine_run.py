"""One engine that runs under a supervisor, and the interface that every way of supervising stands behind.

Ways: a unit of systemd (systemd_supervisor.py), a process group of the agent itself (supervisor.py).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent.launch.death_watch import DeathWatch
from agent.launch.launch_profile import LaunchPlan
from agent.launch.process_tree import ProcessTree
from agent.launch.run_record import RunRecord
from agent.sources.processes import ProcessStat

OnDeath = Callable[[ProcessStat], None]


class Child(Protocol):
    """A process that the agent started itself (subprocess.Popen)."""

    @property
    def pid(self) -> int:
        """Its number."""

    def poll(self) -> int | None:
        """Reap it if it has ended; its exit status then."""


@dataclass(eq=False)
class EngineRun:
    """One engine that runs, or ran, under a supervisor."""

    pid: int
    started_mono_s: float
    tree: ProcessTree
    adopted: bool = False
    record: RunRecord | None = None
    watch: DeathWatch | None = None
    scanner: asyncio.Task[None] | None = None
    child: Child | None = field(default=None, repr=False)
    #: Folder of its control group, under systemd.
    group: Path | None = None
    #: What the supervisor knows of its end.
    end_note: str = ""


class Supervisor(Protocol):
    """Runs at most one engine at a time; all of it on the event loop."""

    async def start(self, plan: LaunchPlan) -> EngineRun:
        """Start it. LaunchError when it cannot be started."""

    def follow(self, run: EngineRun, on_death: OnDeath) -> None:
        """Watch it: `on_death` hears of every process of it that ends, at once."""

    async def adopt(self, plan: LaunchPlan | None) -> EngineRun | None:
        """The living engine that an earlier agent of this boot started with this very launch, if any."""

    async def leftovers(self) -> EngineRun | None:
        """Whatever else is left of earlier launches, to be stopped; None when nothing is."""

    async def stop(self, run: EngineRun, term_s: float) -> tuple[ProcessStat, ...]:
        """SIGTERM, `term_s` later SIGKILL of all (0: at once); those that even that did not end."""

    async def processes(self, run: EngineRun) -> list[ProcessStat]:
        """Its living processes, looked up now."""

    def detach(self, run: EngineRun) -> None:
        """Leave it running, unwatched."""


def engine_mark(engine: str, state_dir: Path) -> str:
    """How the mark of an engine's processes begins; a token of the launch follows.

    The state directory is part of it: agents with different ones (a demo beside the real one) may have
    engines of the same name.
    """
    home = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
    return f"{engine}@{home}:"


def end_watch(run: EngineRun) -> None:
    """Hear of no deaths any more, look for no new processes."""
    if run.scanner is not None:
        run.scanner.cancel()
        run.scanner = None
    if run.watch is not None:
        run.watch.close()
        run.watch = None
