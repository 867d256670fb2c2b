"""Gets holds to the disk from the main loop without stopping it: one writer thread, the newest holds win.

A hold that closes counts at once and is written after; what opens (resume, clear, exit, force-open, a
waiver) is written first, so that a restart never finds the node more closed or more open than its operator
was told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from agent.hold_news import tell_changes
from agent.holds import Holds, HoldsError, HoldStore

log = logging.getLogger("nodegate.holds")
RETRY_S = 1.0


class HoldKeeper:
    """Saves the holds that `current` returns; belongs to the thread of the event loop."""

    def __init__(self, store: HoldStore, current: Callable[[], Holds], known: Holds | None = None) -> None:
        """Nothing is written before the first request; `known` is what the disk has."""
        self._known = known or Holds()
        self._store = store
        self._current = current
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holds")
        self._wanted = asyncio.Event()
        self._behind = False
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why the newest holds are not on the disk; empty when they are."""
        return self._problem

    def save_soon(self) -> None:
        """Have the holds written in the background, again and again until it works."""
        self._behind = True
        self._wanted.set()

    async def save_now(self, holds: Holds) -> None:
        """Write these holds and wait for the disk. Raises HoldsError."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._store.save, holds)
        known, self._known = self._known, holds
        tell_changes(known, holds)

    async def run(self) -> None:
        """Serve `save_soon` until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._try_save()
            if self._problem:
                await asyncio.sleep(RETRY_S)
                self._wanted.set()

    async def close(self) -> None:
        """Write what is not on the disk yet, once, and end the thread."""
        if self._behind:
            await self._try_save()
        self._writer.shutdown(wait=False, cancel_futures=True)

    async def _try_save(self) -> None:
        self._behind = False
        saved = False
        try:
            await self.save_now(self._current())
            saved = True
        except HoldsError as cause:
            if not self._problem:
                log.error("%s; the holds count, but would be lost in a restart", cause)
            self._problem = str(cause)
        else:
            self._problem = ""
        finally:
            # Also when the agent's end cuts the wait for the disk short: `close` then writes them.
            self._behind = self._behind or not saved


async def stop_quietly(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end, whatever that is."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (defect := task.exception()) is not None:
        log.debug("%s ended with %r", task.get_name(), defect)
