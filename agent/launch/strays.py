"""Finding an engine's processes that got away between two looks: daemons that forked twice, and containers.

Nothing in the process table ties them to the engine any more, but orphans are given to the agent (or to init,
for an engine that was started by an earlier agent), and they still carry the mark of their launch. podman's
conmon is such an orphan; it does not carry the mark, but the first process of its container does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Sequence

from agent.launch.reaper import reap
from agent.launch.spare_thread import in_spare_thread
from agent.sources.processes import ProcessStat, carries

logger = logging.getLogger("nodegate.launch")

_INIT_PID = 1
_CONMON = "conmon"
#: Names of a container's first process before it has become the engine: it does not carry the mark yet.
_RUNTIMES = ("runc", "crun", _CONMON)


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
        _reap_conmons(table, os.getpid())
        orphans = list(_orphans(table, os.getpid()))
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


def _orphans(table: Sequence[ProcessStat], agent: int) -> Iterator[ProcessStat]:
    """What was given to the agent or to init, and what runs in containers whose conmon was."""
    own = [stat for stat in table if stat.ppid in (agent, _INIT_PID) and not stat.dead]
    conmons = {stat.pid for stat in own if stat.comm == _CONMON}
    yield from own
    for stat in table:
        if stat.ppid in conmons and not stat.dead and not stat.comm.startswith(_RUNTIMES):
            yield stat


def _reap_conmons(table: Sequence[ProcessStat], agent: int) -> None:
    """Let a conmon go that has ended: it belongs to no engine's processes, so nobody else does."""
    for stat in table:
        if stat.dead and stat.ppid == agent and stat.comm == _CONMON:
            reap(stat.pid)
