"""Mode gate: an engine that somebody else runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from launch_kit import EMBEDDED, engine_profile, rig
from ports import free_port

from agent.model import EnginePhase
from agent.sources import CanaryVerdict


@asynccontextmanager
async def somebodys_engine(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """An embedded engine that no controller started."""
    arguments = ["sim", "--port", str(port), "--startup-s", "0.1", "--token-s", "0.002"]
    engine = await asyncio.create_subprocess_exec(*EMBEDDED, *arguments)
    try:
        yield engine
    finally:
        if engine.returncode is None:
            engine.send_signal(signal.SIGTERM)
        await engine.wait()


def test_its_phase_follows_its_interface(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port()
        async with rig(tmp_path, engine_profile(port, mode="gate")) as r:
            await r.until("a reason", lambda: "nothing answers yet" in r.controller.status.reason)
            r.controller.start_engine()  # not ours to start
            async with somebodys_engine(port):
                await r.until_phase(EnginePhase.WARM)
                assert r.phases == [EnginePhase.ABSENT, EnginePhase.UP, EnginePhase.WARM]
                assert r.controller.status.pid is None
                await r.until("a canary", lambda: r.controller.status.reason == "warm, canary ok")
                r.controller.stop_engine()  # not ours to stop
                assert r.controller.status.phase is EnginePhase.WARM
            await r.until_phase(EnginePhase.ABSENT)
            assert "lost: /health cannot be reached" in " ".join(status.reason for status in r.statuses)
            assert r.observation.canary is None
            async with somebodys_engine(port):
                await r.until_phase(EnginePhase.WARM)

    asyncio.run(scenario())


def test_a_dead_canary_is_told_and_nothing_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port()
        canary = {"period_s": 0.3, "deadline_s": 0.3, "restart_after": 1}
        async with (
            rig(tmp_path, engine_profile(port, mode="gate", canary=canary)) as r,
            somebodys_engine(port) as engine,
        ):
            await r.until_phase(EnginePhase.WARM)
            engine.send_signal(signal.SIGSTOP)
            try:
                await r.until("a dead canary", lambda: r.observation.canary.verdict is CanaryVerdict.DEAD)
            finally:
                engine.send_signal(signal.SIGCONT)
            assert engine.returncode is None
            await r.until_phase(EnginePhase.WARM)

    asyncio.run(scenario())
