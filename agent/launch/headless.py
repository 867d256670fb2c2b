"""A rank without HTTP (vLLM's --headless): its processes are all that can be watched here.

That it answers is proven by the head of its group, whose engine is healthy only with every rank in it: once
the head says so, this rank counts as warm. The end of any of its processes is seen at once, as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.launch.engine_state import EngineEvent, EventKind
from agent.launch.engine_watch import HealthyBy, LifeHooks
from agent.launch.status_book import StatusBook
from agent.model import EngineStatus
from agent.sources import EngineObservation

_PUBLISH_S = 1.0


class HeadlessMonitor:
    """What is observed of such a rank: its processes."""

    def __init__(self, pids: Callable[[], tuple[int, ...]]) -> None:
        """`pids` are those of the last look."""
        self._pids = pids

    def observation(self, status: EngineStatus) -> EngineObservation:
        """All that is known now."""
        return EngineObservation(status=status, pids=self._pids())


async def live_headless(book: StatusBook, head_up: asyncio.Event, hooks: LifeHooks, by: HealthyBy) -> None:
    """From the start of the rank until it is cancelled: warm once the head is up."""
    left_s = by.mono_s - book.clock.mono_s()
    publishing = asyncio.create_task(_publish_forever(book))
    try:
        async with asyncio.timeout(max(0.0, left_s)):
            await head_up.wait()
        if not book.allows(EventKind.HEALTHY):
            return  # a stop or a fault came in the same moment; this task is about to be cancelled
        book.apply(EngineEvent(EventKind.HEALTHY, "the head answers"))
        await hooks.on_whole()
        if not book.allows(EventKind.WARMED):
            return
        book.apply(EngineEvent(EventKind.WARMED, "its rank runs and the head answers"))
        await asyncio.Event().wait()  # until cancelled: deaths are told by the kernel
    except TimeoutError:
        hooks.on_fault(f"the head had not come up {by.words}")
    finally:
        publishing.cancel()


async def _publish_forever(book: StatusBook) -> None:
    """Keep the list of its processes current."""
    while True:
        book.publish()
        await asyncio.sleep(_PUBLISH_S)
