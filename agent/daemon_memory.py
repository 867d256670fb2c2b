"""What an agent takes over from an earlier one on the same boot, and what it leaves for the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.errors import SourceError
from agent.journal import Journal
from agent.model import Result, ResultKey
from agent.sources import Sources
from agent.track_memory import SubjectMemory

log = logging.getLogger("nodegate.daemon")
COUNTERS = "counters"
SERIES = "series"
#: The counters' memory is written no more often than this, when the first gate opens, and at the end.
KEEP_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Results of this boot and what is to be remembered beside them."""

    results: list[Result] = field(default_factory=list)
    memories: Mapping[ResultKey, SubjectMemory] = field(default_factory=dict)


def inherit(journal: Journal, sources: Sources) -> Inheritance:
    """Take over what the journal has of this boot; without it every check simply runs first."""
    boot_id, now_mono_s = sources.clock.boot_id(), sources.clock.mono_s()
    books = ((COUNTERS, sources.counters.restore), (SERIES, sources.series.restore))
    for name, restore in books:
        try:
            kept = journal.last_state(name, boot_id)
            if kept is not None:
                restore(kept, now_mono_s)
        except SourceError as cause:
            log.warning("%s start with new baselines: %s", name, cause)
    try:
        return Inheritance(journal.last_results(boot_id), journal.last_memories(boot_id, now_mono_s))
    except SourceError as cause:
        log.warning("no results are carried over: %s", cause)
        return Inheritance()


class CounterKeeper:
    """Writes the memory of counters and of values over time to the journal now and then."""

    def __init__(self, journal: Journal, sources: Sources) -> None:
        """Nothing is written before the first interval is over."""
        self._journal = journal
        self._sources = sources
        self._kept_s = time.monotonic()
        self._written = False

    def gate_opened(self) -> None:
        """Write for the first time: without baselines the next agent would wait for second samples.

        An agent may die in its first minute too, and its engine's gate is to be closed no longer then.
        """
        if not self._written:
            self.keep(now=True)

    def keep(self, *, now: bool = False) -> None:
        """Write, if it is time or `now`."""
        at_s = time.monotonic()
        if now or at_s - self._kept_s >= KEEP_EVERY_S:
            self._kept_s, self._written = at_s, True
            boot_id = self._sources.clock.boot_id()
            self._journal.record_state(COUNTERS, self._sources.counters.export(), boot_id)
            self._journal.record_state(SERIES, self._sources.series.export(), boot_id)
