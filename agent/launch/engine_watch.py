"""Watching one engine while it runs: wait for health, warm up, then canaries, with polls beside it all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent.errors import LaunchError
from agent.launch.engine_monitor import EngineMonitor
from agent.launch.engine_state import EngineEvent, EventKind
from agent.launch.status_book import StatusBook
from agent.node_profile import Engine
from agent.sources import CanaryReport, CanaryVerdict

#: How long an engine that was taken over may take at least to answer /health.
TAKEN_OVER_S = 60.0


async def _no_soak(_monitor: EngineMonitor) -> None:
    """Nothing is to be soaked."""


@dataclass(frozen=True, slots=True)
class LifeHooks:
    """What a life tells its controller: it is whole now (before it becomes warm), or it has failed.

    `soak` loads it between the two; LaunchError when it fails under load.
    """

    on_whole: Callable[[], Awaitable[None]]
    on_fault: Callable[[str], None]
    soak: Callable[[EngineMonitor], Awaitable[None]] = _no_soak


@dataclass(frozen=True, slots=True)
class HealthyBy:
    """Until when an engine must answer, and that moment in words."""

    mono_s: float
    words: str


def healthy_by(engine: Engine, started_mono_s: float, now_mono_s: float, *, adopted: bool) -> HealthyBy:
    """By the deadline of its start; one that was taken over, which may run for weeks, also some time later.

    An engine of an earlier agent has been healthy long ago, or still loads: either way it is asked first.
    """
    by_mono_s = started_mono_s + engine.start_deadline_s
    if adopted and by_mono_s < now_mono_s + TAKEN_OVER_S:
        return HealthyBy(now_mono_s + TAKEN_OVER_S, f"{TAKEN_OVER_S:g} s after it was taken over")
    return HealthyBy(by_mono_s, f"{engine.start_deadline_s:g} s after its start")


async def poll_forever(book: StatusBook, monitor: EngineMonitor) -> None:
    """Keep the observation on the board fresh."""
    while True:
        started = book.clock.mono_s()
        await monitor.poll()
        book.publish()
        await asyncio.sleep(max(0.05, started + monitor.poll_period_s - book.clock.mono_s()))


async def live(
    book: StatusBook,
    engine: Engine,
    monitor: EngineMonitor,
    hooks: LifeHooks,
    canary_now: asyncio.Event,
    *,
    by: HealthyBy,
    short_warm_up: bool,
) -> None:
    """From the start of the process to a fault; cancelled when the life ends in another way."""
    async with asyncio.TaskGroup() as group:
        polls = group.create_task(poll_forever(book, monitor))
        try:
            await _wait_healthy(monitor, book, by)
            if not book.allows(EventKind.HEALTHY):
                return  # a stop or a fault came in the same moment; this task is about to be cancelled
            book.apply(EngineEvent(EventKind.HEALTHY, "healthy, warming up"))
            await _warm_up(book, monitor, short=short_warm_up)
            await hooks.on_whole()
            await hooks.soak(monitor)
            if not book.allows(EventKind.WARMED):
                return
            book.apply(EngineEvent(EventKind.WARMED, "warm-up passed"))
            await canaries(book, engine, monitor, canary_now, restart=True)
        except LaunchError as cause:
            hooks.on_fault(str(cause))
        finally:
            polls.cancel()


async def _warm_up(book: StatusBook, monitor: EngineMonitor, *, short: bool) -> None:
    """The warm-up; its curve is kept, whether it passes or not."""
    try:
        await monitor.warm_up(book.note, short=short)
    finally:
        if monitor.curve is not None:
            book.keep_warmup(monitor.curve)


async def until_healthy(monitor: EngineMonitor) -> None:
    """Until a poll has found /health to answer 200."""
    while not monitor.health_ok:
        await monitor.polled.wait()


async def _wait_healthy(monitor: EngineMonitor, book: StatusBook, by: HealthyBy) -> None:
    """Until /health answers 200; LaunchError after the deadline."""
    try:
        async with asyncio.timeout(max(0.0, by.mono_s - book.clock.mono_s())):
            await until_healthy(monitor)
    except TimeoutError as cause:
        fault = monitor.health_fault or "no answer"
        raise LaunchError(f"not healthy {by.words}: {fault}") from cause


async def canaries(
    book: StatusBook, engine: Engine, monitor: EngineMonitor, canary_now: asyncio.Event, *, restart: bool
) -> None:
    """One canary each period, counted from start to start, or at once when asked for.

    While tokens move by themselves none is sent, but the text is looked at every `busy_period_s`. With
    `restart` too many dead ones in a row raise LaunchError. One that ran out its deadline is followed by the
    next without a pause when the period is over.
    """
    dead = 0
    sent = told = book.clock.mono_s()
    while True:
        due = min(monitor.canary_due_mono_s(sent), told + engine.canary.period_s)
        asked = await _until(canary_now, due - book.clock.mono_s())
        told = book.clock.mono_s()
        if not asked and told < monitor.canary_due_mono_s(sent):
            report = monitor.spare_canary()
        else:
            sent = told
            report = await monitor.canary()
            dead = dead + 1 if report.verdict is CanaryVerdict.DEAD else 0
        book.publish()
        book.note(_words(report))
        if restart and dead >= engine.canary.restart_after:
            raise LaunchError(f"{dead} dead canaries in a row, the last: {report.reason}")


async def _until(event: asyncio.Event, wait_s: float) -> bool:
    """Wait for the event, but not longer; whether it came. It is used up."""
    try:
        async with asyncio.timeout(max(0.0, wait_s)):
            await event.wait()
    except TimeoutError:
        return False
    finally:
        event.clear()
    return True


def _words(report: CanaryReport) -> str:
    """A canary as a reason. That none was needed is no news: the last one was answered."""
    if report.verdict is CanaryVerdict.MOVING:
        return "warm, canary ok"
    return f"canary {report.verdict}: {report.reason}" if report.reason else "warm, canary ok"
