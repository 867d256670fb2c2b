"""One run of one check, in a thread to itself: whatever the check does, an outcome comes out of it."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from agent.check_plan import CheckPlan
from agent.check_threads import CheckThreads
from agent.errors import BaselineOnly, SourceError
from agent.model import WORST_FIRST, Finding, Verdict
from agent.sources import Sources

#: Characters of a traceback that are kept, its end: that is where the cause stands.
MOST_TRACE = 8_000
#: More subjects than any node has: a check that reports more is broken and must not fill memory and journal.
MOST_SUBJECTS = 2_048


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run said, one finding a subject; `error` is why it ended early, None when it came to its end.

    `duration_s` is the time the run took in seconds, `trace` the traceback of an unexpected exception.
    """

    findings: tuple[Finding, ...]
    error: str | None = None
    duration_s: float = 0.0
    trace: str = ""


def perform(plan: CheckPlan, sources: Sources) -> Outcome:
    """Run the check here and now; never raises."""
    started_s = sources.clock.mono_s()
    findings: dict[str, Finding] = {}
    error, trace = None, ""
    try:
        for finding in plan.check.run(sources, plan.profile, plan.limits):
            if not isinstance(finding, Finding):
                raise TypeError(f"the check yielded {type(finding).__name__}, not a Finding")
            known = findings.get(finding.subject)
            if known is None or _worse(finding, known):
                findings[finding.subject] = finding
            if len(findings) > MOST_SUBJECTS:
                raise OverflowError(f"the check reports more than {MOST_SUBJECTS} subjects")
    except BaselineOnly:
        error = "baseline taken, a second sample is needed"
    except SourceError as cause:
        error = _text(cause)
    # The edge between check and runner: a defect of a check, even SystemExit, is missing evidence. It must
    # neither end the agent nor leave the runner waiting for an answer.
    except BaseException as defect:  # noqa: BLE001
        error, trace = _text(defect), traceback.format_exc()[-MOST_TRACE:]
    return Outcome(tuple(findings.values()), error, max(0.0, sources.clock.mono_s() - started_s), trace)


def start(
    plan: CheckPlan, sources: Sources, done: Callable[[Outcome], None], threads: CheckThreads
) -> threading.Thread:
    """Run the check in a thread of `threads`, which calls `done` with the outcome."""
    return threads.run(lambda: done(perform(plan, sources)), f"check-{plan.check.id}")


def skipped(plan: CheckPlan) -> Outcome:
    """The outcome of a check that the profile leaves out."""
    return Outcome((Finding("node", Verdict.SKIP, plan.skip_reason or ""),))


def no_answer(deadline_s: float) -> str:
    """The summary of a check that has not answered within its deadline in seconds."""
    return f"no answer within {deadline_s:g} s"


def _worse(finding: Finding, known: Finding) -> bool:
    return WORST_FIRST.index(finding.verdict) < WORST_FIRST.index(known.verdict)


def _text(cause: BaseException) -> str:
    text = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


def with_error(outcome: Outcome, known: frozenset[str]) -> tuple[Finding, ...]:
    """The findings of a run, plus UNKNOWN for what its error kept from being judged.

    `known` are the subjects that the check reported before. When none of them is missing, the error must show
    all the same: it becomes a finding on `node`.
    """
    if outcome.error is None:
        nothing = Finding("node", Verdict.UNKNOWN, "the check reported nothing")
        return outcome.findings if outcome.findings or known else (nothing,)
    by_subject = {finding.subject: finding for finding in outcome.findings}
    missing = sorted(known - by_subject.keys())
    for subject in missing or ["node"]:
        lost = Finding(subject, Verdict.UNKNOWN, outcome.error)
        if subject not in by_subject or _worse(lost, by_subject[subject]):
            by_subject[subject] = lost
    return tuple(by_subject.values())
