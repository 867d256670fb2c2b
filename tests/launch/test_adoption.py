"""What a controller makes of an engine that it takes over, with a supervisor that starts nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from launch_kit import engine_profile, rig

from agent.errors import LaunchError
from agent.launch import engine_watch
from agent.launch.engine_run import EngineRun, OnDeath
from agent.launch.launch_profile import LaunchPlan
from agent.launch.process_tree import ProcessTree
from agent.model import EnginePhase
from agent.sources.clock import LiveClock
from agent.sources.processes import ProcessStat, process


class Kept:
    """An engine of an earlier agent: this very process, which answers nothing. It is found when allowed."""

    def __init__(self) -> None:
        self.may_look = asyncio.Event()
        self.starts = 0

    async def start(self, plan: LaunchPlan) -> EngineRun:
        self.starts += 1
        raise LaunchError("nothing is started here")

    async def leftovers(self) -> EngineRun | None:
        await self.may_look.wait()
        return self._run()

    async def adopt(self, plan: LaunchPlan | None) -> EngineRun | None:
        return self._run()

    def _run(self) -> EngineRun:
        own = process(os.getpid())
        assert own is not None
        return EngineRun(own.pid, LiveClock().mono_s(), ProcessTree(own.key), adopted=True)

    def follow(self, run: EngineRun, on_death: OnDeath) -> None:
        """Nothing ends."""

    async def stop(self, run: EngineRun, term_s: float) -> tuple[ProcessStat, ...]:
        return ()

    async def processes(self, run: EngineRun) -> list[ProcessStat]:
        return []

    def detach(self, run: EngineRun) -> None:
        """Nobody watches."""


def test_a_start_that_was_asked_for_before_the_engine_was_found_does_not_outlast_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted gate asks before it knows. After a crash it has to ask anew, when admission passes."""
    monkeypatch.setattr(engine_watch, "TAKEN_OVER_S", 0.05)

    async def scenario() -> None:
        supervisor = Kept()
        profile = engine_profile(1, start_deadline_s=0.05, backoff={"first_s": 0.02, "jitter": 0.0})
        async with rig(tmp_path, profile, supervisor=supervisor, leave_running=True) as r:
            r.controller.start_engine()
            supervisor.may_look.set()
            await r.until("its end", lambda: EnginePhase.BACKOFF in r.phases)
            await r.until_phase(EnginePhase.ABSENT)
            for _ in range(20):
                await asyncio.sleep(0)
            assert EnginePhase.STARTING in r.phases
            assert supervisor.starts == 0
            r.controller.start_engine()
            await r.until("a start", lambda: supervisor.starts == 1)

    asyncio.run(scenario())


def test_an_engine_that_has_not_been_looked_for_yet_is_told_as_such(tmp_path: Path) -> None:
    """A check that took it for absent would call its processes foreign and close its gate for ten seconds."""

    async def scenario() -> None:
        supervisor = Kept()
        profile = engine_profile(1, start_deadline_s=30)
        async with rig(tmp_path, profile, supervisor=supervisor, leave_running=True) as r:
            for _ in range(20):
                await asyncio.sleep(0)
            assert not r.observation.looked
            supervisor.may_look.set()
            await r.until_phase(EnginePhase.STARTING)
            seen = r.observation
            assert (seen.looked, seen.status.phase, seen.status.pid) == (
                True, EnginePhase.STARTING, os.getpid(),
            )  # fmt: skip

    asyncio.run(scenario())
