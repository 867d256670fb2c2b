"""What polls make of health and token counters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from launch_kit import NAME, engine_profile
from odd_server import http, odd_server
from ports import free_port

from agent.errors import LaunchError
from agent.launch import engine_monitor as module
from agent.launch.engine_monitor import EngineMonitor
from agent.model import EnginePhase, EngineStatus
from agent.sources import CanaryVerdict
from agent.sources.clock import LiveClock
from agent.sources.engine import EngineClient

STATUS = EngineStatus(NAME, EnginePhase.WARM, 0.0)


def with_monitor(port: int, use: Callable[[EngineMonitor], Awaitable[None]], model: str | None = "m") -> None:
    """Run something with a monitor of an engine at that port."""

    async def scenario() -> None:
        client = EngineClient("127.0.0.1", port)
        engine = engine_profile(port).profile.engines[NAME]
        try:
            await use(EngineMonitor(engine, client, LiveClock(), model))
        finally:
            await client.close()

    asyncio.run(scenario())


def served(
    answer: bytes | None, use: Callable[[EngineMonitor], Awaitable[None]], model: str | None = "m"
) -> None:
    """The same at a server that always gives one answer."""

    async def scenario() -> None:
        async with odd_server(answer) as port:
            client = EngineClient("127.0.0.1", port)
            engine = engine_profile(port).profile.engines[NAME]
            try:
                await use(EngineMonitor(engine, client, LiveClock(), model))
            finally:
                await client.close()

    asyncio.run(scenario())


def test_a_late_health_is_unknown_and_a_refused_one_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HTTP_DEADLINE_S", 0.2)

    async def late(monitor: EngineMonitor) -> None:
        await monitor.poll()
        assert monitor.observation(STATUS).health_ok is None
        assert "gave no answer in 0.2 s" in monitor.health_fault

    async def refused(monitor: EngineMonitor) -> None:
        await monitor.poll()
        assert monitor.observation(STATUS).health_ok is False

    served(None, late)
    with_monitor(free_port(), refused)


def test_the_first_reading_of_a_counter_is_no_progress() -> None:
    async def use(monitor: EngineMonitor) -> None:
        await monitor.poll()
        await monitor.poll()
        seen = monitor.observation(STATUS)
        assert seen.tokens_total == 5
        assert seen.tokens_moved_mono_s is None

    served(http(200, "vllm:generation_tokens_total 5\n"), use)


def test_polls_are_dense_enough_for_short_deadlines() -> None:
    async def use(monitor: EngineMonitor) -> None:
        assert monitor.poll_period_s == pytest.approx(0.1)

    with_monitor(free_port(), use)


@pytest.mark.parametrize("body", ['{"data": []}', "{}"])
def test_an_engine_without_models_cannot_be_warmed(body: str) -> None:
    async def use(monitor: EngineMonitor) -> None:
        with pytest.raises(LaunchError, match="warm-up failed"):
            await monitor.warm_up(lambda words: None, short=False)
        assert (await monitor.canary()).verdict is CanaryVerdict.DEAD

    served(http(200, body), use, model=None)


def test_warm_up_fails_at_the_first_bad_answer() -> None:
    said: list[str] = []

    async def use(monitor: EngineMonitor) -> None:
        with pytest.raises(LaunchError, match="warm-up request 1 failed: HTTP 500: EngineDeadError"):
            await monitor.warm_up(said.append, short=False)
        assert said == ["warm-up 1 of 3"]

    served(http(500, "EngineDeadError"), use)
