"""One check's subjects over time: outcomes go in, results and what changed come out; no I/O of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent.check_plan import CheckPlan
from agent.check_run import Outcome, with_error
from agent.checks.registry import ClearedBy
from agent.class_run import LADDER, ClassRun, worse
from agent.hysteresis import Confirmation, due_mono_s, step
from agent.model import Finding, Result, ServingClass, Verdict
from agent.result_note import explained, is_news, unexplained
from agent.track_memory import SubjectMemory


@dataclass(frozen=True, slots=True)
class ResultChange:
    """A result that came up or changed; `before` is None when the subject is new."""

    before: Result | None
    after: Result
    #: What a restarted agent must know of it beside the result.
    memory: SubjectMemory | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was read, on both clocks in seconds, and whether any gate serves at that time."""

    mono_s: float
    wall_s: float
    serving: bool


@dataclass(slots=True)
class _Subject:
    """What is kept of one subject between runs."""

    result: Result
    state: Confirmation | None
    #: The finding that the confirmed FAIL rests on, shown for as long as it holds.
    failing: Finding | None = None
    #: How long the current run of FAILs has been of each class.
    run: ClassRun = field(default_factory=ClassRun)
    #: The check itself has reported it under the current profile, so it must go on doing so.
    expected: bool = True
    #: Made by the runner for an error that concerned no known subject; goes when the check answers again.
    placeholder: bool = False
    #: Its FAIL came with a new profile while serving: it gates the next launch, not the running engine.
    drift: bool = False
    #: The last reading was of a worse class than what is confirmed, and has not lasted yet.
    growing_worse: bool = False
    #: How often its FAIL has been confirmed on this boot; a clear does not forget it.
    times: int = 0


def _no_part(_subject: str) -> str:
    """Nobody knows which part a subject is."""
    return ""


class CheckTrack:
    """The memory of one check: hysteresis and expected subjects. Used from one thread."""

    def __init__(
        self, plan: CheckPlan, profile_hash: str = "", part_of: Callable[[str], str] = _no_part
    ) -> None:
        """Start with nothing known; `part_of` names the part that a subject is now."""
        self.plan = plan
        self._profile_hash = profile_hash
        self._part_of = part_of
        self._subjects: dict[str, _Subject] = {}
        self._profile_is_new = False

    @property
    def results(self) -> list[Result]:
        """The current results."""
        return [subject.result for subject in self._subjects.values()]

    @property
    def any_unknown(self) -> bool:
        """Whether the last reading of any subject was UNKNOWN."""
        return any(s.result.raw_verdict is Verdict.UNKNOWN for s in self._subjects.values())

    def seed(
        self, result: Result, memory: SubjectMemory | None = None, *, now_mono_s: float | None = None
    ) -> None:
        """Take over a result of an earlier agent on the same boot; the next run replaces it.

        What was judged by another profile is taken over only where it stands against the node.
        """
        kept = memory or SubjectMemory(self._profile_hash)
        same_profile = kept.profile_hash == self._profile_hash
        if not same_profile and not kept.failed and result.verdict is not Verdict.FAIL:
            return
        valid_for_s = min(result.valid_for_s, self.plan.valid_for_s(serving=True))
        fresh = now_mono_s is None or result.age_s(now_mono_s) <= valid_for_s
        self._subjects[result.subject] = _Subject(
            result=replace(result, carried=True, shadow=self.plan.shadow, valid_for_s=valid_for_s),
            state=kept.confirmation(result, fresh=fresh),
            failing=unexplained(result.finding) if result.verdict is Verdict.FAIL or kept.drift else None,
            run=kept.run if fresh else ClassRun(),
            expected=False,
            drift=kept.drift and same_profile,
            times=result.times,
        )

    @property
    def memories(self) -> dict[str, SubjectMemory]:
        """By subject, what a restarted agent must know beside the results."""
        return {name: self._memory(subject) for name, subject in self._subjects.items()}

    def _memory(self, subject: _Subject) -> SubjectMemory:
        return SubjectMemory.of(subject.state, subject.run, self._profile_hash, drift=subject.drift)

    def due_mono_s(self) -> float | None:
        """The earliest moment at which one more reading would change a verdict; None if none would."""
        times = [
            due_mono_s(subject.state, self.plan.timings(subject.result.serving_class))
            for subject in self._subjects.values()
            if subject.state is not None
        ]
        times += [
            subject.run.due_mono_s(self.plan.fail_for_s)
            for subject in self._subjects.values()
            if subject.growing_worse
        ]
        return min((time for time in times if time is not None), default=None)

    def absorb(self, outcome: Outcome, at: Moment, *, triggered: bool = False) -> tuple[ResultChange, ...]:
        """Take in a run that started at `at`; if an event `triggered` it, new evidence is news."""
        known = frozenset(n for n, s in self._subjects.items() if not s.placeholder)
        findings = {finding.subject: finding for finding in with_error(outcome, known)}
        own = {finding.subject for finding in outcome.findings}
        changes = [
            self._read(name, finding, at, own=name in own, triggered=triggered)
            for name, finding in findings.items()
        ]
        for name in [name for name in self._subjects if name not in findings]:
            changes.append(self._gone(name, at))
        if outcome.error is None:
            self._profile_is_new = False
        return tuple(change for change in changes if change is not None)

    def silence(self, reason: str, at: Moment) -> tuple[ResultChange, ...]:
        """No outcome: every subject, or `node` when there is none yet, reads UNKNOWN with this reason."""
        return self.absorb(Outcome((), reason), at)

    def profile_changed(
        self, plan: CheckPlan, at: Moment, profile_hash: str = ""
    ) -> tuple[ResultChange, ...]:
        """Judge by another profile; what was judged by the old one is bridged while serving, else UNKNOWN."""
        self.plan = plan
        self._profile_hash = profile_hash
        self._profile_is_new = True
        for subject in self._subjects.values():
            subject.expected = False
        # A check that bridges no gap would close a serving gate here, for no more than the moment until
        # it runs.
        silent = self._subjects and not (at.serving and plan.unknown_for_s <= 0)
        return self.silence("the profile changed, not checked again yet", at) if silent else ()

    def forget(self, subject: str | None) -> list[str]:
        """Drop the memory of one subject or all: the next reading counts as a first one, sticky or not.

        Answers with the subjects whose sticky FAIL no operator can clear.
        """
        held = []
        for name, kept in self._subjects.items():
            if subject is not None and name != subject:
                continue
            failed = kept.state is not None and kept.state.failed
            if failed and self.plan.check.sticky and ClearedBy.OPERATOR not in self.plan.check.clears:
                held.append(name)
            else:
                kept.state, kept.failing, kept.expected, kept.drift = None, None, False, False
                kept.run, kept.growing_worse = ClassRun(), False
        return held

    def _gone(self, name: str, at: Moment) -> ResultChange | None:
        """The check answered and did not report a subject that it reported before."""
        subject = self._subjects[name]
        sticky_fail = self.plan.check.sticky and subject.state is not None and subject.state.failed
        off = self.plan.skip_reason is not None
        if off or not (subject.expected or sticky_fail):
            del self._subjects[name]
            return None
        return self._read(name, Finding(name, Verdict.UNKNOWN, "no longer reported"), at, own=False)

    def _read(
        self, name: str, finding: Finding, at: Moment, *, own: bool, triggered: bool = False
    ) -> ResultChange | None:
        """Take in one finding; the change, if it is one worth telling."""
        subject = self._subjects.get(name)
        before = subject.result if subject is not None else None
        if subject is None or self.plan.skip_reason is not None:
            times = subject.times if subject is not None else 0
            blank = _blank(self.plan, finding, at)
            subject = _Subject(blank, None, expected=own, placeholder=not own, times=times)
            self._subjects[name] = subject
        elif own:
            subject.expected, subject.placeholder = True, False
        self._note_drift(subject, finding, at)
        known_failed = subject.state is not None and subject.state.failed
        timings = self.plan.timings(self._class_of(finding))
        subject.state = step(subject.state, finding.verdict, timings, at.mono_s, serving=at.serving)
        subject.times += int(subject.state.failed and not known_failed)
        self._note_run(subject, finding, at)
        self._keep_failing(subject, finding, at)
        subject.result = self._result(subject, finding, before, at)
        news = is_news(before, subject.result, triggered=triggered)
        return ResultChange(before, subject.result, self._memory(subject)) if news else None

    def _note_drift(self, subject: _Subject, finding: Finding, at: Moment) -> None:
        """What was good by the old profile and fails by the new one has drifted, it has not broken."""
        if finding.verdict in (Verdict.PASS, Verdict.WARN, Verdict.SKIP):
            subject.drift = False
        elif (
            finding.verdict is Verdict.FAIL
            and self._profile_is_new
            and at.serving
            and subject.state is not None
            and subject.state.verdict in (Verdict.PASS, Verdict.WARN)
        ):
            at_once = (finding.serving_class or self.plan.serving_class) is ServingClass.IMMEDIATE
            # What cannot be drift: a device that broke for good, or that nobody may overlook.
            subject.drift = not (at_once or self.plan.check.sticky or not self.plan.check.waivable)

    def _note_run(self, subject: _Subject, finding: Finding, at: Moment) -> None:
        """Missing evidence ends no run of FAILs, as in hysteresis."""
        if finding.verdict is Verdict.FAIL:
            subject.run = subject.run.next(self._class_of(finding), at.mono_s)
        elif finding.verdict is not Verdict.UNKNOWN:
            subject.run = ClassRun()

    def _keep_failing(self, subject: _Subject, finding: Finding, at: Moment) -> None:
        """Remember what a confirmed FAIL rests on; no lighter finding replaces that of a sticky one."""
        state, held = subject.state, subject.failing
        subject.growing_worse = False
        if state is None or not state.failed:
            subject.failing = None
        elif finding.verdict is Verdict.FAIL:
            if held is not None and self.plan.check.sticky and worse(*map(self._class_of, (held, finding))):
                return
            confirmed = self._confirmed_class(subject, finding, at)
            subject.growing_worse = worse(self._class_of(finding), confirmed)
            subject.failing = replace(finding, serving_class=confirmed) if subject.growing_worse else finding

    def _confirmed_class(self, subject: _Subject, finding: Finding, at: Moment) -> ServingClass:
        """The class with which a FAIL that is confirmed counts: the reading's own once that has lasted."""
        now = self._class_of(finding)
        held = self._class_of(subject.failing) if subject.failing is not None else None
        at_once = not at.serving or now is ServingClass.IMMEDIATE or self.plan.fail_for_s <= 0
        if at_once or (held is not None and not worse(now, held)):
            return now
        lasted = subject.run.lasted(self.plan.fail_for_s, at.mono_s)
        return max((each for each in (lasted, held) if each is not None), key=LADDER.index, default=now)

    def _class_of(self, finding: Finding) -> ServingClass:
        return finding.serving_class or self.plan.serving_class

    def _result(self, subject: _Subject, finding: Finding, before: Result | None, at: Moment) -> Result:
        """The result that follows from the state."""
        state = subject.state
        assert state is not None
        rests_on = (subject.failing or finding) if state.verdict is Verdict.FAIL else finding
        # Drift is a warning while an engine serves; its last reading, FAIL, blocks the next launch.
        drifted = subject.drift and at.serving and state.verdict is state.raw is Verdict.FAIL
        verdict = Verdict.WARN if drifted else state.verdict
        bridged = state.raw is Verdict.UNKNOWN and state.verdict is not Verdict.UNKNOWN and before is not None
        same = before is not None and before.verdict is verdict
        return Result(
            check=self.plan.check.id,
            finding=explained(rests_on, state, self.plan, drift=drifted),
            verdict=verdict,
            raw_verdict=state.raw,
            serving_class=ServingClass.INFO if subject.drift else self._class_of(rests_on),
            measured_mono_s=before.measured_mono_s if bridged and before is not None else at.mono_s,
            first_seen_s=before.first_seen_s if same and before is not None else at.wall_s,
            valid_for_s=self.plan.valid_for_s(serving=at.serving),
            shadow=self.plan.shadow,
            times=subject.times,
            part=self._part_of(finding.subject),
            measures=finding.measures,
        )


def _blank(plan: CheckPlan, finding: Finding, at: Moment) -> Result:
    """A result to start from; replaced before anyone sees it."""
    nothing = Verdict.UNKNOWN
    return Result(plan.check.id, finding, nothing, nothing, plan.serving_class, at.mono_s, at.wall_s, 0.0)
