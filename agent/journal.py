"""The journal: every change of a result or a gate and every operator command, with its evidence, by boot id.

One thread writes (journal_writer.py), so no caller ever waits for a disk. Trouble with the file never reaches
a gate: it shows in `healthy` and `reason`, is tried again every second, and what had to be dropped is noted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.check_track import ResultChange
from agent.journal_read import (
    read_faults,
    read_history,
    read_latest,
    read_memories,
    read_recent,
    read_state,
)
from agent.journal_store import Retention, Row
from agent.journal_writer import QUEUE_ROWS, RETRY_S, JournalWriter
from agent.model import Result, ResultKey, Snapshot, Verdict
from agent.result_json import result_to_dict
from agent.sources.fault_history import PartFault
from agent.track_memory import SubjectMemory

__all__ = ["Journal", "Retention"]

#: `record_latest` writes no more often than this: it serves slow results, fast ones are soon measured anew.
LATEST_EVERY_S = 30.0

_CHANGE = (
    "INSERT INTO changes (wall_s, mono_s, boot_id, check_id, subject, before, verdict, raw_verdict, summary,"
    " evidence, part) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_GATE = (
    "INSERT INTO gates (wall_s, boot_id, engine, before, state, reason, evidence)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_OPERATOR = "INSERT INTO operator (wall_s, boot_id, command, reason, who) VALUES (?, ?, ?, ?, ?)"
_MARK = "INSERT INTO marks (wall_s, boot_id, mark, summary) VALUES (?, ?, ?, ?)"
_FAULT = (
    "INSERT INTO faults (wall_s, boot_id, part, place, check_id, hardware, summary)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_TRACE = "INSERT INTO traces (wall_s, boot_id, check_id, summary, trace) VALUES (?, ?, ?, ?, ?)"
_STATE = "INSERT OR REPLACE INTO memory (boot_id, name, value) VALUES (?, ?, ?)"
_OTHER_STATES = "DELETE FROM memory WHERE boot_id <> ?"
_LATEST = "INSERT OR REPLACE INTO latest (boot_id, check_id, subject, result) VALUES (?, ?, ?, ?)"
_FORGET = "DELETE FROM latest WHERE boot_id <> ? OR check_id = ? AND subject = ?"
_OTHER_BOOTS = "DELETE FROM latest WHERE boot_id <> ?"


class Journal:
    """See the module. Methods may be called from any thread; none but `open` and the readers raises."""

    def __init__(self, path: Path, writer: JournalWriter, wall: Callable[[], float]) -> None:
        """Use `open`."""
        self.path = path
        self._writer = writer
        self._wall = wall
        self._boot_id = ""
        self._latest_at_s: float | None = None
        #: How many changes, gates, orders, marks and traces have been recorded by this agent.
        self.recorded = 0
        self._latest: dict[ResultKey, float] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        retention: Retention | None = None,
        wall: Callable[[], float] = time.time,
        retry_s: float = RETRY_S,
        queue_rows: int = QUEUE_ROWS,
    ) -> Journal:
        """Open or make the journal. Raises ConfigError only for a journal of a newer nodegate.

        A broken file is moved aside; one that cannot be opened now is tried again every `retry_s` seconds.
        """
        kept = retention or Retention()
        return cls(path, JournalWriter(path, kept, wall, retry_s=retry_s, queue_rows=queue_rows), wall)

    @property
    def healthy(self) -> bool:
        """Whether what is recorded gets to the disk."""
        return not self._writer.trouble

    @property
    def reason(self) -> str:
        """Why the journal is not healthy, else what is worth a warning about it; empty when all is well."""
        return self._writer.trouble or self._writer.notice

    def record_changes(
        self,
        changes: Sequence[ResultChange],
        boot_id: str,
        explain: Callable[[Result], Mapping[str, Any]] | None = None,
    ) -> None:
        """Record changed results with their evidence and, if someone explains it, what it means."""
        self._boot_id = boot_id
        wall_s = self._wall()
        self.recorded += len(changes)
        for change in changes:
            after = change.after
            before = None if change.before is None else change.before.verdict.value
            stored = result_to_dict(after)
            evidence = _json(stored | {"explained": explain(after)} if explain else stored)
            seen = (wall_s, after.measured_mono_s, boot_id, after.check, after.subject)
            said = (before, after.verdict.value, after.raw_verdict.value, after.finding.summary, evidence)
            self._writer.put(Row(_CHANGE, (*seen, *said, after.part)))
            latest = _json(_with_memory(stored, change.memory))
            self._writer.put(Row(_LATEST, (boot_id, after.check, after.subject, latest)))

    def record_fault(self, fault: PartFault) -> None:
        """Record a confirmed fault of a part, for its history over reboots."""
        at = (fault.wall_s, fault.boot_id, fault.part, fault.place)
        self._writer.put(Row(_FAULT, (*at, fault.check, int(fault.hardware), fault.summary)))

    def record_trace(self, check: str, summary: str, trace: str, *, boot_id: str = "") -> None:
        """Record where a check broke or hangs."""
        self.recorded += 1
        self._writer.put(Row(_TRACE, (self._wall(), boot_id or self._boot_id, check, summary, trace)))

    def record_crash(self, engine: str, reason: str, lines: Sequence[str], *, boot_id: str = "") -> None:
        """Record the crash of an engine with the last lines of its output."""
        self.record_trace(f"engine:{engine}", reason, "\n".join(lines), boot_id=boot_id)

    def record_state(self, name: str, value: object, boot_id: str) -> None:
        """Keep a value for an agent that restarts on this boot; what other boots kept is dropped."""
        self._writer.put(Row(_OTHER_STATES, (boot_id,)))
        self._writer.put(Row(_STATE, (boot_id, name, _json(value))))

    def record_latest(
        self,
        snapshot: Snapshot,
        memories: Callable[[], Mapping[ResultKey, SubjectMemory]] = dict,
        fleeting: Container[str] = (),
    ) -> None:
        """Note how fresh every result is, for an agent that restarts on this boot; cheap after every run.

        Of checks that are `fleeting` nobody takes over a good result: it is noted once, not how fresh it is.
        """
        now_s = time.monotonic()
        if self._latest_at_s is not None and now_s - self._latest_at_s < LATEST_EVERY_S:
            return
        self._latest_at_s = now_s
        self._boot_id = snapshot.boot_id
        for key in self._latest.keys() - snapshot.results.keys():
            del self._latest[key]
            self._writer.put(Row(_FORGET, (snapshot.boot_id, *key)))
        self._writer.put(Row(_OTHER_BOOTS, (snapshot.boot_id,)))
        remembered = memories()
        for key, result in snapshot.results.items():
            known_mono_s = self._latest.get(key)
            if known_mono_s is not None and result.check in fleeting and _is_good(result):
                continue
            if _worth_noting(result, known_mono_s):
                self._latest[key] = result.measured_mono_s
                stored = _json(_with_memory(result_to_dict(result), remembered.get(key)))
                self._writer.put(Row(_LATEST, (snapshot.boot_id, *key, stored)))

    def record_gate(
        self, engine: str, old: str, new: str, reason: str, evidence: object = None, *, boot_id: str = ""
    ) -> None:
        """Record a change of a gate's state, synced to the disk; `evidence` is anything JSON can hold."""
        self.recorded += 1
        at = (self._wall(), boot_id or self._boot_id)
        row = Row(_GATE, (*at, engine, str(old), str(new), reason, _json(evidence)), durable=True)
        self._writer.put(row)

    def record_operator(self, command: str, reason: str, who: str, *, boot_id: str = "") -> None:
        """Record an operator's command, synced to the disk."""
        self.recorded += 1
        at = (self._wall(), boot_id or self._boot_id)
        self._writer.put(Row(_OPERATOR, (*at, command, reason, who), durable=True))

    def record_mark(self, mark: str, summary: str, *, boot_id: str = "") -> None:
        """Record what happened to the agent itself: a start, a stop, a new profile."""
        self.recorded += 1
        self._writer.put(Row(_MARK, (self._wall(), boot_id or self._boot_id, mark, summary)))

    def history(
        self, since_wall_s: float, limit: int = 1000, part: str | None = None
    ) -> list[dict[str, Any]]:
        """The newest `limit` entries since a time (wall clock), oldest first. Raises SourceUnavailable.

        Each has `kind` (result, gate, operator, mark, trace), `wall_s`, `boot_id` and what its table holds.
        With `part` (id or subject) the results of that part alone.
        """
        return read_history(self.path, since_wall_s, limit, part)

    def recent(self, limit: int) -> list[dict[str, Any]]:
        """The newest changes, newest first (`kind`, `wall_s`, `what`, `who`, `before`, `after`, `why`).

        Raises SourceUnavailable.
        """
        return read_recent(self.path, limit)

    def faults(self, since_wall_s: float) -> list[PartFault]:
        """Confirmed faults by part since a time, oldest first. Raises SourceUnavailable."""
        return read_faults(self.path, since_wall_s)

    def last_results(self, boot_id: str) -> list[Result]:
        """The newest results of this boot, to be carried over a restart. Raises SourceUnavailable."""
        return read_latest(self.path, boot_id)

    def last_memories(self, boot_id: str, now_mono_s: float) -> dict[ResultKey, SubjectMemory]:
        """What is to be remembered beside the results of this boot. Raises SourceUnavailable."""
        return read_memories(self.path, boot_id, now_mono_s)

    def last_state(self, name: str, boot_id: str) -> object:
        """What `record_state` kept on this boot, None for nothing. Raises SourceUnavailable."""
        return read_state(self.path, name, boot_id)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until all that was recorded is committed; False if not in time, or if entries were dropped."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is left and end the thread; gives up after `timeout_s`."""
        self._writer.close(timeout_s)


def _is_good(result: Result) -> bool:
    return result.verdict is result.raw_verdict is Verdict.PASS


def _worth_noting(result: Result, known_mono_s: float | None) -> bool:
    """Whether what is noted of a result has come of age: half the time for which it stands."""
    return known_mono_s is None or result.measured_mono_s - known_mono_s >= result.valid_for_s / 2


def _with_memory(stored: dict[str, Any], memory: SubjectMemory | None) -> dict[str, Any]:
    return stored if memory is None else stored | {"memory": memory.to_dict()}


def _json(value: object) -> str:
    """JSON text; what JSON cannot hold is kept as its text, because a journal entry must not fail."""
    try:
        return json.dumps(value, default=str, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(repr(value))
