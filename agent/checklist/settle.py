"""What a run's steps amount to. Pure: shared by the runner, the daemon and the check node.checklist."""

from __future__ import annotations

from collections.abc import Sequence

from agent.checklist.model import GOOD, Checklist, QuestionStep
from agent.checklist.record import RunRecord, StepRecord
from agent.model import Verdict, worst


def stand_ins(checklist: Checklist) -> dict[str, str]:
    """Check step -> the question that stands in for it where there is no sensor."""
    return {
        step.stands_in_for: step.id
        for step in checklist.steps
        if isinstance(step, QuestionStep) and step.stands_in_for is not None
    }


def counting(checklist: Checklist, steps: Sequence[StepRecord]) -> list[tuple[StepRecord, Verdict | None]]:
    """Each step with the verdict that counts: UNKNOWN gives way to the answer that stands in for it."""
    by_id = {step.id: step for step in steps}
    standing = stand_ins(checklist)
    found = []
    for step in steps:
        verdict = step.verdict
        answer = by_id.get(standing.get(step.id, ""))
        if verdict is Verdict.UNKNOWN and answer is not None and answer.answer is not None:
            verdict = answer.verdict
        found.append((step, verdict))
    return found


def is_answerable(checklist: Checklist, step: StepRecord) -> bool:
    """Whether a question may yet stand in for this step's missing evidence."""
    return step.verdict is Verdict.UNKNOWN and step.id in stand_ins(checklist)


def verdict_of(checklist: Checklist, steps: Sequence[StepRecord]) -> Verdict:
    """The verdict of a run that has come to its end; a step that was not done is UNKNOWN."""
    return worst([verdict or Verdict.UNKNOWN for _, verdict in counting(checklist, steps)])


def first_open(checklist: Checklist, steps: Sequence[StepRecord]) -> int:
    """Place of the first step that has not ended well; the number of steps when all have."""
    found = counting(checklist, steps)
    return next((i for i, (_, verdict) in enumerate(found) if verdict not in GOOD), len(found))


def fault_of(checklist: Checklist, record: RunRecord, until: int | None = None) -> str | None:
    """Why the steps (before the place `until`) are no proof; None when each has ended well.

    `checklist` is as its file has it, whatever `--set` has lowered for the run.

    The record must have every step of the checklist, in order, as its definition says.
    """
    if record.definition != checklist.definition:
        return f"its steps are not those of the checklist {checklist.name} as it is now"
    wanted = [step.id for step in checklist.steps]
    if [step.id for step in record.steps] != wanted:
        return "its steps are not those of its checklist"
    for step, verdict in counting(checklist, record.steps)[:until]:
        if verdict not in GOOD:
            return f"step {step.id} is {verdict or 'not done'}"
    if not any(verdict is not Verdict.SKIP for _, verdict in counting(checklist, record.steps)[:until]):
        return "every step was left out: nothing was proven"
    return None
