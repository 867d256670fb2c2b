"""Which run may go on where it was left, and what of it must be done again."""

from __future__ import annotations

from agent.checklist.hardware import differences
from agent.checklist.model import Checklist
from agent.checklist.record import RunRecord
from agent.checklist.store import RunStore
from agent.errors import ConfigError, SourceUnavailable
from agent.model import Verdict

#: A run that was left longer ago than this is begun anew, in seconds.
MOST_AGE_S = 24 * 3600.0
_ANEW = "begin a new run, without --resume"


def to_resume(store: RunStore, checklist: Checklist) -> RunRecord:
    """The newest run of a checklist, if it has not passed. Raises ConfigError."""
    runs = store.of(checklist.name)
    if not runs:
        raise ConfigError(f"there is no run of {checklist.name} to resume", remedy=_ANEW)
    try:
        record = store.read(runs[-1])
    except SourceUnavailable as cause:
        raise ConfigError(f"the run cannot be resumed: {cause}", remedy=_ANEW) from cause
    if record.verdict in (Verdict.PASS, Verdict.WARN):
        raise ConfigError(f"run {record.run_id} has passed; there is nothing to resume", remedy=_ANEW)
    return record


def refuse_to_resume(record: RunRecord, wanted: RunRecord) -> None:
    """Raises ConfigError where what was proven is of something else than what is there now.

    `wanted` is the record that a run would begin with now.
    """
    problem, remedy = None, _ANEW
    changed = differences(record.parts, wanted.parts)
    left_s = max(
        (t for s in record.steps for t in (s.started_wall_s, s.ended_wall_s) if t is not None),
        default=record.started_wall_s,
    )
    if record.definition != wanted.definition:
        problem = "the checklist has changed since"
    elif record.shortened != wanted.shortened:
        numbers = ", ".join(record.shortened) or "those of the checklist"
        problem = f"it was begun with other numbers ({numbers})"
        remedy = f"give the same --set, or {_ANEW}"
    elif record.profile_hash != wanted.profile_hash:
        problem = "the profile has changed since"
    elif changed:
        problem = f"the hardware has changed since: {'; '.join(changed[:3])}"
    elif not 0 <= wanted.started_wall_s - left_s <= MOST_AGE_S:
        problem = f"it was left more than {MOST_AGE_S / 3600:g} h ago, or the clock was set back"
    if problem is not None:
        raise ConfigError(f"run {record.run_id} cannot be resumed: {problem}", remedy=remedy)


def take_up(record: RunRecord, checklist: Checklist, boot_id: str) -> list[str]:
    """Make the record ready to go on in this boot; the steps that are done again because of a reboot."""
    record.resumed += 1
    if record.boot_id == boot_id:
        return []
    again = []
    for step, kept in zip(checklist.steps, record.steps, strict=True):
        if step.again_after_reboot and kept.verdict is not None:
            kept.verdict = None
            kept.summary = "to be done again: the node was rebooted"
            again.append(step.id)
    record.boot_id = boot_id
    return again
