"""What an engine leaves in /dev/shm when it is killed, and its removal.

Noted while the engine's processes live (they are the only proof of whose a file is) and removed when all of
them are gone and nobody else maps the file.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.launch.spare_thread import in_spare_thread
from agent.sources import Clock
from agent.sources.processes import ProcessStat
from agent.sources.shared_memory import own_files, remove_unheld

logger = logging.getLogger("nodegate.launch")

#: `maps` of a process stuck in the kernel hangs its reader.
_DEADLINE_S = 5.0
#: A file system's time stamps are up to a tick of the kernel older than the clock.
_TICK_S = 1.0


class SharedMemory:
    """The shared memory files of one life of an engine."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._names: set[str] = set()

    async def note(self, alive: Sequence[ProcessStat]) -> None:
        """Remember what these processes map now; what cannot be read in time is left out."""
        pids = [stat.pid for stat in alive]
        try:
            self._names |= await in_spare_thread(lambda: own_files(pids), _DEADLINE_S)
        except TimeoutError:
            logger.warning("the shared memory of %d processes could not be read in time", len(pids))

    async def remove(self, clock: Clock, started_mono_s: float) -> tuple[str, ...]:
        """Remove what is left of it once all its processes are gone; the names."""
        if not self._names:
            return ()
        names = frozenset(self._names)
        since_s = clock.wall_s() - (clock.mono_s() - started_mono_s) - _TICK_S
        try:
            removed = await in_spare_thread(lambda: remove_unheld(names, since_s), _DEADLINE_S)
        except TimeoutError:
            logger.warning("shared memory that the engine left could not be removed in time")
            return ()
        if removed:
            logger.info("removed shared memory that the engine left: %s", ", ".join(removed))
        return removed
