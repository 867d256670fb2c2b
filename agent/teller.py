"""When results are told: news at once, mere freshness a little later and all of it together.

Judging every gate and publishing costs the same for one new reading as for fifty. A change is told as soon
as it is there; changes that follow within a moment share one telling, and readings that change nothing wait
for the next one, or for the next beat of the main loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.check_track import ResultChange

#: Two tellings of changes are at least so far apart; the first one of a burst waits for nothing.
GAP_S = 0.02
#: Readings that change nothing are told within this time.
QUIET_S = 1.1


class Teller:
    """Calls `tell` with the changes so far. Belongs to the thread of the event loop."""

    def __init__(self, tell: Callable[[tuple[ResultChange, ...]], None]) -> None:
        """Nothing waits."""
        self._tell = tell
        self._changes: list[ResultChange] = []
        self._due_s: float | None = None
        self._told_s = -GAP_S
        self._wake = asyncio.Event()

    def note(self, changes: tuple[ResultChange, ...]) -> None:
        """New readings are there; tell them now or soon."""
        now_s = time.monotonic()
        self._changes += changes
        due_s = self._told_s + GAP_S if changes else now_s + QUIET_S
        self._due_s = due_s if self._due_s is None else min(self._due_s, due_s)
        if self._due_s <= now_s:
            self.flush()
        else:
            self._wake.set()

    def flush(self) -> bool:
        """Tell what waits, now; whether anything did."""
        if self._due_s is None:
            return False
        changes, self._changes = tuple(self._changes), []
        self._due_s = None
        self._told_s = time.monotonic()
        self._tell(changes)
        return True

    async def run(self) -> None:
        """Tell in time what nothing else tells, until cancelled."""
        while True:
            left_s = None if self._due_s is None else self._due_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                self.flush()
                continue
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):  # wait_for of Python 3.11 loses a cancellation at times
                    await self._wake.wait()
