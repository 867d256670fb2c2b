"""Runs of checklists as checks see them: read from the records, once for each state of a record's file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from agent.checklist.hardware import parts_of
from agent.checklist.load import available, load_named, own_of
from agent.checklist.model import GOOD
from agent.checklist.record import RunRecord
from agent.checklist.settle import fault_of
from agent.checklist.store import RECORD, RunStore
from agent.errors import ConfigError, SourceUnavailable
from agent.profile_loader import LoadedProfile
from agent.sources import Sources
from agent.sources.checklist_runs import ChecklistRun, RunEnd

#: So many runs of each checklist are looked at; the newest that has ended decides.
MOST_RUNS = 8
_Mark = tuple[int, int, int]


class PastRuns:
    """Reads the records of a state folder. May be used from any thread."""

    def __init__(self, store: RunStore, sources: Sources, loaded: Callable[[], LoadedProfile]) -> None:
        """Nothing is read yet."""
        self._store = store
        self._sources = sources
        self._loaded = loaded
        self._lock = threading.Lock()
        self._known: dict[str, tuple[_Mark, ChecklistRun]] = {}
        self._covers: tuple[str, dict[str, tuple[str, ...]]] = ("", {})

    def runs(self, checklist: str) -> Sequence[ChecklistRun]:
        """The newest runs of the checklist and of those that cover it. Raises SourceUnavailable."""
        with self._lock:
            names = (checklist, *self._covering().get(checklist, ()))
            ids = [run_id for name in names for run_id in self._store.of(name)[-MOST_RUNS:]]
            return [self._run(run_id) for run_id in sorted(ids, reverse=True)]

    def parts_now(self) -> Mapping[str, str]:
        """The hardware as it is now. Raises SourceError."""
        return parts_of(self._sources, self._loaded().profile, serials=False)

    def _covering(self) -> dict[str, tuple[str, ...]]:
        """Checklist -> others that have every step of it; read once a profile."""
        loaded = self._loaded()
        if self._covers[0] != loaded.hash:
            found: dict[str, tuple[str, ...]] = {}
            own = own_of(loaded)
            try:
                for name in available(own):
                    for covered in load_named(name, own).covers:
                        found[covered] = (*found.get(covered, ()), name)
            except ConfigError as cause:
                raise SourceUnavailable(f"a checklist cannot be read: {cause}") from cause
            self._covers = (loaded.hash, found)
        return self._covers[1]

    def _run(self, run_id: str) -> ChecklistRun:
        path = self._store.folder / run_id / RECORD
        try:
            found = path.lstat()
            mark = (found.st_ino, found.st_mtime_ns, found.st_size)
            known = self._known.get(run_id)
            if known is None or known[0] != mark:
                known = (mark, self._judged(self._store.read(run_id)))
                self._known[run_id] = known
            return known[1]
        except FileNotFoundError:
            return ChecklistRun(run_id, RunEnd.OPEN, "has not begun")
        except OSError as cause:
            return ChecklistRun(run_id, RunEnd.GARBLED, f"{path}: {cause.strerror or cause}")
        except SourceUnavailable as cause:
            return ChecklistRun(run_id, RunEnd.GARBLED, str(cause))

    def _judged(self, record: RunRecord) -> ChecklistRun:
        end, summary = self._end_of(record)
        return ChecklistRun(record.run_id, end, summary, record.parts)

    def _end_of(self, record: RunRecord) -> tuple[RunEnd, str]:
        if record.verdict is None and not self._is_at_gate(record):
            return RunEnd.OPEN, "has not ended"
        if record.verdict is not None and record.verdict not in GOOD:
            bad = next((step for step in reversed(record.steps) if step.verdict not in (None, *GOOD)), None)
            at = f" at {bad.id}: {bad.summary}" if bad is not None else ""
            return RunEnd.FAILED, f"ended in {record.verdict}{at}"
        if not record.steps:
            return RunEnd.FAILED, "has no steps"
        if record.shortened:
            return RunEnd.PARTLY, f"was shortened: {', '.join(record.shortened)}"
        if record.origin == "file":
            return RunEnd.PARTLY, "was of a file that is not the node's own"
        if record.simulated and not self._sources.simulated:
            return RunEnd.PARTLY, "was SIMULATED"
        return RunEnd.PASSED, "passed"

    def _is_at_gate(self, record: RunRecord) -> bool:
        """Whether all that comes before the gate has passed: the gate waits for just that."""
        try:
            checklist = load_named(record.checklist, own_of(self._loaded()))
        except ConfigError:
            return False
        place = checklist.gate
        if place is None or fault_of(checklist, record, place) is not None:
            return False
        return record.steps[place].started_wall_s is not None and record.steps[place].verdict is None
