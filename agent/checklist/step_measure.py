"""A step of kind `measure`: a measured test in a thread of its own, so that one that hangs ends the step."""

from __future__ import annotations

import threading

from agent.checklist.measure import MeasureContext, MeasureOutcome, measures
from agent.checklist.model import MeasureStep
from agent.checklist.steps import Ended, Surroundings
from agent.errors import AgentError
from agent.model import Verdict

#: A test that was told to end has this long to do it, in real seconds.
ENDS_WITHIN_S = 30.0
#: Beyond its own end a test may take this long, by the clock that it is given.
SLACK_S = 60.0
_LOOK_S = 0.2


def run_measure_step(step: MeasureStep, given: Surroundings) -> Ended:
    """Run the measured test until it ends, its time is over, or the run is called off."""
    test = measures()[step.measure]
    until_s = given.now_s() + step.timeout_s
    began_wall_s = given.record.started_wall_s

    def keep(name: str, subject: str, unit: str, value: float) -> None:
        at_s = round(given.sources.clock.wall_s() - began_wall_s, 2)
        given.curves.keep(step.id, name, subject, unit, (at_s, value))

    overdue = threading.Event()
    context = MeasureContext(
        sources=given.sources,
        profile=given.loaded,
        until_mono_s=until_s,
        say=given.say,
        keep=keep,
        cancelled=lambda: given.cancelled.is_set() or overdue.is_set(),
    )
    bounded = _Bounded(lambda: test.run(context, test.params.model_validate(step.params)))
    bounded.start()
    try:
        _wait(bounded, given, until_s)
    except KeyboardInterrupt:  # the test ends its processes first; a second one ends at once
        given.cancelled.set()
    finally:
        overdue.set()
    if not bounded.ended.wait(ENDS_WITHIN_S):
        text = f"{step.measure} did not end when it was told to; look for its processes"
        return Ended(Verdict.UNKNOWN, text, hint=step.on_fail)
    given.refuse_if_cancelled()
    if bounded.outcome is None:
        return Ended(Verdict.UNKNOWN, bounded.problem, hint=step.on_fail)
    return _ended(step, bounded.outcome, late=given.now_s() > until_s + SLACK_S)


def _wait(bounded: _Bounded, given: Surroundings, until_s: float) -> None:
    """Until it has ended, or there is a reason to end it."""
    while not bounded.ended.wait(_LOOK_S):
        if given.cancelled.is_set() or given.now_s() > until_s + SLACK_S:
            return


def _ended(step: MeasureStep, outcome: MeasureOutcome, *, late: bool) -> Ended:
    verdict, summary = outcome.verdict, outcome.summary
    if late and verdict in (Verdict.PASS, Verdict.WARN):
        verdict, summary = Verdict.UNKNOWN, f"not done within {step.timeout_s:g} s: {summary}"
    bad = verdict in (Verdict.FAIL, Verdict.UNKNOWN)
    return Ended(
        verdict,
        summary,
        findings=outcome.findings,
        values=outcome.values,
        hint=" ".join(filter(None, (step.on_fail, outcome.hint))) if bad else "",
    )


class _Bounded:
    """One run of a test in a daemon thread: what hangs does not keep the program from ending."""

    def __init__(self, job: object) -> None:
        self._job = job
        self.ended = threading.Event()
        self.outcome: MeasureOutcome | None = None
        self.problem = ""

    def start(self) -> None:
        threading.Thread(target=self._run, name="measure", daemon=True).start()

    def _run(self) -> None:
        assert callable(self._job)
        try:
            self.outcome = self._job()
        except AgentError as cause:
            self.problem = str(cause)
        # The edge of the thread: a defect of a test is no evidence.
        except Exception as defect:  # noqa: BLE001
            self.problem = f"the test broke: {type(defect).__name__}: {defect}"
        finally:
            self.ended.set()
