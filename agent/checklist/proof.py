"""Whether a record proves what its run claims: the daemon's own look, before it ends any hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.checklist.hardware import differences
from agent.checklist.load import load_named
from agent.checklist.model import Checklist
from agent.checklist.record import RunRecord
from agent.checklist.settle import fault_of
from agent.checklist.store import RunStore
from agent.errors import AgentError, ConfigError, SourceUnavailable
from agent.holds import Hold

#: The last step before the gate ended at most so long ago, the first at most a day ago, in seconds.
FRESH_S = 3600.0
OLDEST_S = 24 * 3600.0


class ProofRefused(AgentError):
    """The record proves nothing of this node as it is now."""


@dataclass(frozen=True, slots=True)
class Now:
    """The node as the daemon knows it."""

    profile_hash: str
    boot_id: str
    parts: Mapping[str, str]
    wall_s: float
    simulated: bool
    #: What would end, by what it is called: `maintenance`, `quarantine of ENGINE`.
    held: Mapping[str, Hold] = field(default_factory=dict)


def prove(store: RunStore, run_id: str, now: Now, own: Path | None) -> RunRecord:
    """The record of a run that has passed all that comes before its gate step. Raises ProofRefused."""
    try:
        record = store.read(run_id)
        checklist = load_named(record.checklist, own)
    except (SourceUnavailable, ConfigError) as cause:
        raise ProofRefused(str(cause)) from cause
    problem = (
        _of_its_steps(record, checklist)
        or _of_the_node(record, now)
        or _of_its_age(record, checklist, now)
        or _of_the_holds(record, checklist, now)
    )
    if problem is not None:
        raise ProofRefused(f"run {run_id} proves nothing here: {problem}")
    return record


def _of_its_steps(record: RunRecord, checklist: Checklist) -> str | None:
    """What of the steps speaks against it."""
    place = checklist.gate
    if place is None:
        return f"{checklist.name} has no gate step"
    if problem := fault_of(checklist, record, place):
        return problem
    gate = record.steps[place]
    if record.verdict is not None or gate.started_wall_s is None or gate.verdict is not None:
        return "it is not at its gate step"
    return None


def _of_the_node(record: RunRecord, now: Now) -> str | None:
    """What of the node is otherwise than it was."""
    if record.profile_hash != now.profile_hash:
        return "the profile is another one"
    if record.boot_id != now.boot_id:
        return "it is of another boot"
    if changed := differences(record.parts, now.parts):
        return f"the hardware is another one: {'; '.join(changed[:3])}"
    if record.simulated != now.simulated:
        return "it is of a simulated node" if record.simulated else "this node is simulated"
    if record.shortened and not now.simulated:
        return f"it was shortened: {', '.join(record.shortened)}"
    return None


def _of_its_age(record: RunRecord, checklist: Checklist, now: Now) -> str | None:
    ended = [step.ended_wall_s or 0.0 for step in record.steps[: checklist.gate]]
    if min(ended) < now.wall_s - OLDEST_S or max(ended) < now.wall_s - FRESH_S:
        return (
            f"it is too old: the last step ended more than {FRESH_S / 60:g} min ago, or the first a day ago"
        )
    if max(ended) > now.wall_s + 1.0:
        return "it is from the future: the clock was set back"
    return None


def _of_the_holds(record: RunRecord, checklist: Checklist, now: Now) -> str | None:
    """A hold from after the first step is for something that the run may not have seen."""
    began_s = min(step.started_wall_s or 0.0 for step in record.steps[: checklist.gate])
    for name, hold in now.held.items():
        # A run that failed at its gate has entered maintenance itself, for the engine's sake.
        own = hold.reason.startswith(f"run {record.run_id} failed at ")
        if hold.since_wall_s > began_s and not own:
            return f"{name} began after it: {hold.reason[:200]}; begin a new run, without --resume"
    return None
