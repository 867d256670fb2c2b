"""node.checklist: have the checklists that the profile requires passed on the hardware that is there now?

Source: the records of runs in the state folder. The newest run that has ended decides. One that was
shortened, simulated or of a file that is not the node's own counts for nothing; one that cannot be read is no
evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.checklist.hardware import differences
from agent.checks.advice import person
from agent.checks.registry import Limits, check, unknown
from agent.errors import ParseError, SourceError
from agent.model import Action, Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.checklist_runs import ChecklistRun, RunEnd

WANTED = "passed on this hardware"
_RUN = person("Run the required checklist on this node while it is in maintenance.")


def _nothing_required(profile: NodeProfile) -> str | None:
    return None if profile.admission.require else "the profile requires no checklist (admission.require)"


@check(
    "node.checklist",
    title="Required checklists have passed",
    source="STATE_DIR/checklists/RUN_ID/run.json",
    serving_class=ServingClass.INFO,
    phases=(Phase.ADMISSION,),
    period_s=10.0,
    deadline_s=10.0,
    fail_for_s=10.0,
    skip=_nothing_required,
    action=_RUN,
)
def node_checklist(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each checklist of admission.require must have passed since the last change of hardware."""
    for name in dict.fromkeys(profile.admission.require):
        try:
            yield _judge(sources, name)
        except SourceError as cause:
            yield unknown(name, cause)


def _judge(sources: Sources, name: str) -> Finding:
    skipped = ""
    for run in sources.checklists.runs(name):
        if run.end is RunEnd.GARBLED:
            raise ParseError(f"a record cannot be read: {run.summary}")
        if run.end is RunEnd.FAILED:
            return _bad(name, f"run {run.run_id} {run.summary}")
        if run.end is RunEnd.PASSED:
            return _judge_hardware(sources, name, run)
        if run.end is RunEnd.PARTLY:
            skipped = skipped or f" (run {run.run_id} does not count: it {run.summary})"
    return _bad(name, f"{name} has not passed on this node{skipped}")


def _judge_hardware(sources: Sources, name: str, run: ChecklistRun) -> Finding:
    changed = _changed(run.parts, sources.checklists.parts_now())
    if changed:
        more = f" and {len(changed) - 2} more" if len(changed) > 2 else ""
        text = f"the hardware has changed since run {run.run_id}: {'; '.join(changed[:2])}{more}"
        return _bad(name, text)
    summary = f"run {run.run_id} passed on this hardware"
    return Finding(name, Verdict.PASS, summary, "passed", WANTED, basis=Basis.profile("admission.require"))


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is another part now; a record without parts is of no known hardware."""
    if not before and now:
        return ["the run does not say which hardware it was on"]
    return differences(before, now)


def _bad(name: str, summary: str) -> Finding:
    hint = f"Run `nodegate checklist run {name}` on this node while it is in maintenance."
    basis = Basis.profile("admission.require")
    action = Action(_RUN.kind, hint)
    return Finding(name, Verdict.FAIL, summary[:400], "not passed", WANTED, action=action, basis=basis)
