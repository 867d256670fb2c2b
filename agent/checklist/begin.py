"""How a run begins: the record of what is proven, on which hardware, boot and profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.checklist.hardware import digest
from agent.checklist.model import Checklist, kind_of
from agent.checklist.record import RunRecord, StepRecord
from agent.checklist.store import run_id_of


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run is about, as it is now."""

    node: str
    simulated: bool
    profile_hash: str
    boot_id: str
    parts: dict[str, str]
    wall_s: float
    origin: Literal["shipped", "site", "file"] = "file"


def new_record(
    checklist: Checklist, facts: Facts, *, who: str, reason: str, shortened: Sequence[str] = ()
) -> RunRecord:
    """A record with every step still to be done; `shortened` says what is less than the checklist has."""
    return RunRecord(
        run_id=run_id_of(checklist.name, facts.wall_s),
        checklist=checklist.name,
        title=checklist.title,
        node=facts.node,
        simulated=facts.simulated,
        profile_hash=facts.profile_hash,
        boot_id=facts.boot_id,
        hardware=digest(facts.parts),
        parts=facts.parts,
        definition=checklist.definition,
        origin=facts.origin,
        shortened=list(shortened),
        who=who,
        reason=reason,
        started_wall_s=facts.wall_s,
        steps=[StepRecord(id=step.id, title=step.title, kind=kind_of(step)) for step in checklist.steps],
    )
