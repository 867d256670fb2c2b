"""Finding an engine's processes that got away between two looks: daemons that forked twice.

Nothing in the process table ties them to the engine any more, but orphans are given to the agent (or to init,
for an engine that was started by an earlier agent), and they still carry the mark of their launch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence

from agent.launch.spare_thread import in_spare_thread
from agent.sources.processes import ProcessStat, carries

logger = logging.getLogger("nodegate.launch")

_INIT_PID = 1


class StrayFinder:
    """Looks once at each orphan that nobody knows. One for each engine."""

    def __init__(self, mark: str, deadline_s: float) -> None:
        """Look for the environment variable `mark` (`NAME=value...`), for at most `deadline_s` at a time."""
        self._mark = mark
        self._deadline_s = deadline_s
        self._seen: set[tuple[int, int]] = set()

    async def find(
        self, table: Sequence[ProcessStat], known: Collection[tuple[int, int]]
    ) -> list[ProcessStat]:
        """Orphans in the table that carry the mark and are not known."""
        parents = (os.getpid(), _INIT_PID)
        orphans = [stat for stat in table if stat.ppid in parents and not stat.dead]
        fresh = [stat for stat in orphans if stat.key not in self._seen and stat.key not in known]
        self._seen = {stat.key for stat in orphans}
        if not fresh:
            return []
        try:
            return await in_spare_thread(
                lambda: [stat for stat in fresh if carries(stat, self._mark)], self._deadline_s
            )
        except TimeoutError:  # one of them is stuck in the kernel: the others are looked at next time
            logger.warning("the marks of %d new orphans could not be read in time", len(fresh))
            self._seen -= {stat.key for stat in fresh[1:]}
            return []
