"""The states of one engine and what moves it between them (pure): step(record, event, now) -> record.

absent -start-> starting -healthy-> up -warmed-> warm
starting, up, warm -fault-> exited -gone-> backoff -retry-> absent     (crash loop: exited -gone-> crashloop)
starting, up, warm, exited -stop-> stopping -gone-> absent
stopping, exited -survived-> unkillable
absent -adopt-> starting (an engine of an earlier agent), absent -leftover-> stopping (one it cannot keep)
absent -seen-> up, up or warm -lost-> absent (mode gate: somebody else runs the engine)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from agent.errors import IllegalTransition
from agent.model import EnginePhase, EngineStatus


class EventKind(StrEnum):
    """What can happen to an engine."""

    START = "start"
    ADOPT = "adopt"
    LEFTOVER = "leftover"
    HEALTHY = "healthy"
    WARMED = "warmed"
    FAULT = "fault"
    STOP = "stop"
    GONE = "gone"
    SURVIVED = "survived"
    RETRY = "retry"
    RESET = "reset"
    SEEN = "seen"
    LOST = "lost"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One event. `wait_s` and `crashes_mono_s` belong to GONE after a fault: None = too many crashes."""

    kind: EventKind
    reason: str = ""
    pid: int | None = None
    wait_s: float | None = None
    crashes_mono_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """All that is remembered of one engine between events."""

    phase: EnginePhase = EnginePhase.ABSENT
    since_mono_s: float = 0.0
    reason: str = "not started"
    pid: int | None = None
    restarts: int = 0
    crashes_mono_s: tuple[float, ...] = ()
    retry_at_mono_s: float | None = None

    def status(self, name: str) -> EngineStatus:
        """The record as the rest of the agent sees it."""
        return EngineStatus(
            name, self.phase, self.since_mono_s, self.reason, self.pid, self.restarts, self.retry_at_mono_s
        )


_RUNNING = (EnginePhase.STARTING, EnginePhase.UP, EnginePhase.WARM)

#: Phases that an operator's word ends; in all others it only forgets the crashes.
_RESETTABLE = (EnginePhase.BACKOFF, EnginePhase.CRASHLOOP, EnginePhase.UNKILLABLE)

_TABLE: dict[tuple[EnginePhase, EventKind], EnginePhase] = {
    (EnginePhase.ABSENT, EventKind.START): EnginePhase.STARTING,
    (EnginePhase.ABSENT, EventKind.ADOPT): EnginePhase.STARTING,
    (EnginePhase.ABSENT, EventKind.LEFTOVER): EnginePhase.STOPPING,
    (EnginePhase.ABSENT, EventKind.SEEN): EnginePhase.UP,
    (EnginePhase.STARTING, EventKind.HEALTHY): EnginePhase.UP,
    (EnginePhase.UP, EventKind.WARMED): EnginePhase.WARM,
    (EnginePhase.UP, EventKind.LOST): EnginePhase.ABSENT,
    (EnginePhase.WARM, EventKind.LOST): EnginePhase.ABSENT,
    **{(phase, EventKind.FAULT): EnginePhase.EXITED for phase in _RUNNING},
    **{(phase, EventKind.STOP): EnginePhase.STOPPING for phase in (*_RUNNING, EnginePhase.EXITED)},
    (EnginePhase.BACKOFF, EventKind.STOP): EnginePhase.ABSENT,
    (EnginePhase.STOPPING, EventKind.GONE): EnginePhase.ABSENT,
    (EnginePhase.EXITED, EventKind.GONE): EnginePhase.BACKOFF,  # or CRASHLOOP, see step
    (EnginePhase.STOPPING, EventKind.SURVIVED): EnginePhase.UNKILLABLE,
    (EnginePhase.EXITED, EventKind.SURVIVED): EnginePhase.UNKILLABLE,
    (EnginePhase.BACKOFF, EventKind.RETRY): EnginePhase.ABSENT,
    **{(phase, EventKind.RESET): EnginePhase.ABSENT for phase in _RESETTABLE},
}


def allows(record: EngineRecord, kind: EventKind) -> bool:
    """Whether the table has this event in the record's phase."""
    return kind in (EventKind.NOTE, EventKind.RESET) or (record.phase, kind) in _TABLE


def step(record: EngineRecord, event: EngineEvent, now_mono_s: float) -> EngineRecord:
    """The record after an event; raises IllegalTransition for a pair that the table does not have."""
    if event.kind is EventKind.NOTE:
        return replace(record, reason=event.reason, pid=record.pid if event.pid is None else event.pid)
    if event.kind is EventKind.RESET and record.phase not in _RESETTABLE:
        return replace(record, crashes_mono_s=())
    phase = _TABLE.get((record.phase, event.kind))
    if phase is None:
        raise IllegalTransition(f"an engine that is {record.phase} cannot take the event {event.kind}")
    after = replace(
        record,
        phase=phase,
        since_mono_s=now_mono_s,
        reason=event.reason or record.reason,
        retry_at_mono_s=None,
    )
    if event.kind in (EventKind.START, EventKind.ADOPT):
        return replace(after, pid=event.pid)
    if event.kind is EventKind.RESET:
        return replace(after, pid=None, crashes_mono_s=())
    if event.kind is EventKind.GONE and record.phase is EnginePhase.EXITED:
        return _crashed(after, event, now_mono_s)
    if phase is EnginePhase.ABSENT:
        return replace(after, pid=None)
    return replace(after, pid=event.pid) if event.pid is not None else after


def _crashed(after: EngineRecord, event: EngineEvent, now_mono_s: float) -> EngineRecord:
    """What a cleaned-up crash leads to: a wait, or an end of trying."""
    counted = replace(after, pid=None, restarts=after.restarts + 1, crashes_mono_s=event.crashes_mono_s)
    if event.wait_s is None:
        return replace(counted, phase=EnginePhase.CRASHLOOP)
    return replace(counted, retry_at_mono_s=now_mono_s + event.wait_s)
