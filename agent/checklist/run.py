"""One run of a checklist: its steps in order, a record after each, and what its end does to the node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from agent.checklist.conditions import left_out
from agent.checklist.model import GOOD, CheckStep, GateStep, MeasureStep, QuestionStep, Step
from agent.checklist.progress import progress_of
from agent.checklist.record import RunRecord, StepRecord
from agent.checklist.settle import counting, is_answerable, verdict_of
from agent.checklist.step_check import run_check_step
from agent.checklist.step_gate import run_gate_step
from agent.checklist.step_measure import run_measure_step
from agent.checklist.step_question import run_question_step
from agent.checklist.steps import CalledOff, Ended, Surroundings
from agent.checklist.store import RecordError, RunStore
from agent.errors import ConfigError, DaemonError, SourceError
from agent.model import Verdict

log = logging.getLogger("nodegate.checklist")
_RUNS: Mapping[type, Callable[[Any, Surroundings], Ended]] = {
    CheckStep: run_check_step,
    MeasureStep: run_measure_step,
    QuestionStep: run_question_step,
    GateStep: run_gate_step,
}


class Run:
    """A run that is begun or resumed; the lock is held by whoever calls."""

    def __init__(self, given: Surroundings, store: RunStore) -> None:
        """Nothing is done yet."""
        self._given = given
        self._record = given.record
        self._store = store

    def go(self) -> RunRecord:
        """Do every step that has not ended well, until one fails. The record, with its verdict.

        Raises CalledOff or ConfigError (a question that nobody answers); the record is then kept and can be
        resumed. Raises RecordError when the record cannot be kept.
        """
        record = self._record
        record.verdict, record.ended_wall_s = None, None
        self._given.curves.restore(record.curves)
        try:
            self._do_steps()
        except RecordError:  # the gate may have ended the holds, and nobody will know of its end
            self._keep_closed()
            raise
        self._finish()
        return record

    def _do_steps(self) -> None:
        record = self._record
        for place, step in enumerate(self._given.checklist.steps):
            kept, verdict = counting(self._given.checklist, record.steps)[place]
            if verdict in GOOD:
                continue
            self._do(step, kept)
            if kept.verdict not in GOOD and not is_answerable(self._given.checklist, kept):
                break

    def _do(self, step: Step, kept: StepRecord) -> None:
        """One step, from its first record to its last."""
        reason = left_out(self._given.loaded.profile, step.when)
        self._begin(kept)
        if reason is not None:
            self._end(kept, Ended(Verdict.SKIP, reason))
            return
        self._given.say(f"{step.id}: {step.title}")
        try:
            self._given.refuse_if_cancelled()
            ended = _RUNS[type(step)](step, self._given)
        except SourceError as cause:
            ended = Ended(Verdict.UNKNOWN, str(cause), hint=step.on_fail)
        except (CalledOff, ConfigError):
            self._leave(kept)
            raise
        except KeyboardInterrupt as cause:
            self._leave(kept)
            raise CalledOff from cause
        # The edge of a step: a defect, or a daemon that answers nonsense, is no evidence; maintenance holds.
        except Exception as defect:
            log.exception("step %s broke", step.id)
            text = f"the step broke: {type(defect).__name__}: {defect}"
            ended = Ended(Verdict.UNKNOWN, text, hint=step.on_fail)
        self._end(kept, ended)

    def _begin(self, kept: StepRecord) -> None:
        kept.verdict, kept.ended_wall_s, kept.answer = None, None, None
        kept.findings, kept.values = [], []
        kept.summary = kept.hint = ""
        kept.started_wall_s = self._wall_s()
        kept.attempts += 1
        self._given.curves.drop(kept.id)
        self._write()

    def _end(self, kept: StepRecord, ended: Ended) -> None:
        kept.verdict, kept.summary, kept.hint = ended.verdict, ended.summary[:1000], ended.hint
        kept.findings, kept.values, kept.answer = list(ended.findings), list(ended.values), ended.answer
        kept.ended_wall_s = self._wall_s()
        self._record.outcome += ended.outcome
        self._write()
        self._given.say(f"{kept.id}: {kept.verdict}: {kept.summary}")

    def _leave(self, kept: StepRecord) -> None:
        """The step was not done: the run ends here and goes on from it when it is resumed."""
        kept.summary = "not done: the run was called off here"
        self._record.ended_wall_s = self._wall_s()
        self._write()

    def _finish(self) -> None:
        record = self._record
        verdict = verdict_of(self._given.checklist, record.steps)
        record.verdict = Verdict.UNKNOWN if verdict is Verdict.SKIP else verdict
        record.ended_wall_s = self._wall_s()
        if record.verdict not in GOOD:
            self._keep_closed()
        self._write()

    def _keep_closed(self) -> None:
        """A failed run of a checklist that opens gates leaves the node in maintenance, its step named."""
        given, place = self._given, self._given.checklist.gate
        if place is None or given.daemon is None:
            return
        counted = counting(given.checklist, self._record.steps)
        failed = next((step for step, verdict in counted if verdict not in GOOD), None)
        if failed is None:
            return
        try:
            held = bool((given.daemon.status().get("holds") or {}).get("maintenance"))
            if not held and not self._record.steps[place].attempts:
                self._record.outcome.append("the node was not in maintenance; its holds stay as they are")
                return
            self._record.outcome += given.daemon.failed(
                self._record.run_id, failed.id, failed.summary or "its record could not be kept"
            )
        except DaemonError as cause:
            text = f"the daemon could not be told that step {failed.id} failed: {cause}"
            self._record.outcome.append(text)
            given.say(text)

    def _write(self) -> None:
        self._record.curves = self._given.curves.curves()
        self._store.write(self._record, progress_of(self._record))

    def _wall_s(self) -> float:
        return self._given.sources.clock.wall_s()
