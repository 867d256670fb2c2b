"""Watching an engine that somebody else runs (mode gate): its phase follows its HTTP interface."""

from __future__ import annotations

import asyncio
import logging

from agent.errors import LaunchError
from agent.launch.engine_monitor import EngineMonitor
from agent.launch.engine_state import EngineEvent, EventKind
from agent.launch.engine_watch import canaries, poll_forever, until_healthy
from agent.launch.launch_profile import engine_api_key, served_name
from agent.launch.status_book import StatusBook
from agent.node_profile import Engine
from agent.sources.engine import EngineClient

logger = logging.getLogger("nodegate.launch")

#: Polls without health in a row after which the engine counts as gone; one alone may be a full accept queue.
LOST_AFTER = 3


async def watch_external(book: StatusBook, engine: Engine, canary_now: asyncio.Event) -> None:
    """Until cancelled: absent while nothing answers, up when healthy, warm after the warm-up."""
    try:
        key = engine_api_key(engine)
    except LaunchError as cause:  # without the key the canaries are refused, and say so
        logger.warning("engine %s: %s", book.name, cause)
        key = None
    client = EngineClient(engine.host, engine.port, api_key=key)
    book.monitor = EngineMonitor(engine, client, book.clock, served_name(engine))
    try:
        await _watch(book, engine, book.monitor, canary_now)
    finally:
        await client.close()


async def _watch(book: StatusBook, engine: Engine, monitor: EngineMonitor, canary_now: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(poll_forever(book, monitor))
        while True:
            book.note("nothing answers yet; somebody else starts this engine (mode gate)")
            await until_healthy(monitor)
            book.apply(EngineEvent(EventKind.SEEN, "healthy, warming up"))
            serving = group.create_task(_serve(book, engine, monitor, canary_now))
            await _until_lost(monitor)
            serving.cancel()
            await asyncio.wait({serving})
            monitor.forget()  # it was about the engine that is gone
            book.apply(EngineEvent(EventKind.LOST, f"lost: {monitor.health_fault}"))


async def _until_lost(monitor: EngineMonitor) -> None:
    """Until health was refused in several polls in a row; a late answer is left to the canary."""
    failed = 0
    while failed < LOST_AFTER:
        await asyncio.sleep(monitor.poll_period_s)
        failed = failed + 1 if monitor.health_ok is False else 0


async def _serve(book: StatusBook, engine: Engine, monitor: EngineMonitor, canary_now: asyncio.Event) -> None:
    """Warm up, again and again until it passes, then send canaries.

    Nothing is restarted, for it is not ours.
    """
    while True:
        try:
            await monitor.warm_up(book.note, short=False, ours=False)
            break
        except LaunchError as cause:
            book.note(str(cause))
            await asyncio.sleep(engine.canary.period_s)
    if monitor.curve is not None:
        book.keep_warmup(monitor.curve)
    book.apply(EngineEvent(EventKind.WARMED, "warm-up passed"))
    await canaries(book, engine, monitor, canary_now, restart=False)
