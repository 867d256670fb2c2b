"""Making sure that a unit ends and stays ended, even when systemd answers late or not at all for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.errors import LaunchError, SourceError
from agent.launch.spare_thread import in_spare_thread
from agent.sources.systemd import SHOW_DEADLINE_S, Systemd

logger = logging.getLogger("nodegate.launch")

#: `begin` waits this long; what is not ended by then goes on in the background.
PATIENCE_S = 10.0
RETRY_S = 0.1
_SLOW_RETRY_S = 2.0
_NOTES = {
    "oom-kill": "the kernel killed it for memory (systemd: oom-kill)",
    "core-dump": "it crashed (systemd: core-dump)",
    "watchdog": "systemd's watchdog ended it",
    "timeout": "it did not end within TimeoutStopSec of its unit",
}
_DEADLINE_S = SHOW_DEADLINE_S + 2.0


class UnitEnd:
    """The end of one unit. Between `begin` and its end no new start is possible."""

    def __init__(self, systemd: Systemd, unit: str) -> None:
        """Nothing is ended yet."""
        self._systemd = systemd
        self._unit = unit
        self._ending: asyncio.Task[None] | None = None

    async def kill_all(self) -> None:
        """SIGKILL for the whole control group, as far as systemd answers."""
        await self._ask(self._systemd.kill_all)

    async def note(self) -> str:
        """What systemd says of an end that nobody asked for, where it says more than that it ended."""
        try:
            unit = await in_spare_thread(lambda: self._systemd.show(self._unit), _DEADLINE_S)
        except (SourceError, TimeoutError):
            return ""
        return _NOTES.get(unit.result, "")

    async def begin(self, starting: asyncio.Future[None] | None = None) -> None:
        """End the unit: kill what runs, withdraw a start that waits, forget a failure.

        `starting` is a start that may not have reached systemd yet: until it is over nothing has ended.
        """
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._until_ended(starting))
        await asyncio.wait((self._ending,), timeout=PATIENCE_S)

    async def finish(self) -> None:
        """Before a start. LaunchError while an earlier run is still being ended."""
        unit_state = "systemd does not answer"
        if self._ending is None or self._ending.done():
            unit = await self._state()
            if unit == "":
                return
            unit_state = unit or unit_state
            await self.begin()
        if self._ending is not None and not self._ending.done():
            raise LaunchError(f"{self._unit}: an earlier run is still being ended: {unit_state}")

    async def _state(self) -> str | None:
        """The unit's state in words, empty when it has ended, None when systemd does not say."""
        try:
            unit = await in_spare_thread(lambda: self._systemd.show(self._unit), _DEADLINE_S)
        except (SourceError, TimeoutError) as cause:
            logger.warning("%s: %s", self._unit, cause or "systemd does not answer")
            return None
        if unit.active_state == "failed":
            await self._ask(self._systemd.reset_failed)
        return "" if unit.ended else unit.words

    async def _until_ended(self, starting: asyncio.Future[None] | None) -> None:
        turn = 0
        while True:
            started = starting is None or starting.done()  # before the look: what comes up later is seen
            state = await self._state()
            if state == "" and started:
                return
            if state:
                await self._ask(self._systemd.kill_all)
                await self._ask(self._systemd.stop)
            turn += 1
            await asyncio.sleep(RETRY_S if turn < 20 else _SLOW_RETRY_S)

    async def _ask(self, call: Callable[[str], None]) -> None:
        """One request; a refusal is no more than noted, for the state that is asked next decides."""
        try:
            await in_spare_thread(lambda: call(self._unit), _DEADLINE_S)
        except (SourceError, TimeoutError) as cause:
            logger.info("%s: %s", self._unit, cause or "systemd does not answer")
