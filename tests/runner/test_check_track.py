"""One check's memory: subjects that come and go, errors, carried results, a changed profile."""

from __future__ import annotations

from typing import Any

import pytest
from runner_kit import make_check, profile, result

from agent.check_plan import plan_check
from agent.check_run import Outcome
from agent.check_track import CheckTrack, Moment, ResultChange
from agent.model import Action, ActionKind, Finding, ServingClass, Verdict
from agent.node_profile import CheckOverride

P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP


class Desk:
    """A track and a clock; `say` feeds it findings by subject."""

    def __init__(self, serving: bool = False, **check: Any) -> None:
        self.check = make_check("a.check", **check)
        self.track = CheckTrack(plan_check(self.check, profile()))
        self.serving = serving
        self.now = 100.0

    def at(self) -> Moment:
        return Moment(self.now, 1_000_000 + self.now, self.serving)

    def say(
        self, error: str | None = None, *, after_s: float = 1.0, triggered: bool = False, **by_subject: Any
    ) -> tuple[ResultChange, ...]:
        self.now += after_s
        findings = [
            f if isinstance(f, Finding) else Finding(subject, f, f"reads {f}")
            for subject, f in by_subject.items()
        ]
        return self.track.absorb(Outcome(tuple(findings), error), self.at(), triggered=triggered)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        return {r.subject: r.verdict for r in self.track.results}

    def summary(self, subject: str) -> str:
        return next(r.finding.summary for r in self.track.results if r.subject == subject)


def test_an_error_makes_every_known_subject_unknown_and_keeps_what_was_judged_before_it() -> None:
    desk = Desk()
    desk.say(gpu0=P, gpu1=P, gpu2=F)
    desk.say("OSError: gone", gpu0=P)
    assert desk.verdicts == {"gpu0": P, "gpu1": U, "gpu2": F}
    assert desk.summary("gpu1") == "OSError: gone"


def test_an_error_before_anything_is_known_shows_on_the_node_and_goes_with_the_next_answer() -> None:
    desk = Desk()
    desk.say("KeyError: 'x'")
    assert desk.verdicts == {"node": U}
    desk.say(gpu0=P)
    assert desk.verdicts == {"gpu0": P}


def test_an_error_after_all_known_subjects_were_judged_still_shows() -> None:
    desk = Desk()
    desk.say(gpu0=P)
    desk.say("KeyError: 'x'", gpu0=P)
    assert desk.verdicts == {"gpu0": P, "node": U}


def test_a_check_that_reports_nothing_is_unknown() -> None:
    desk = Desk()
    desk.say()
    assert desk.verdicts == {"node": U}


def test_a_subject_that_is_no_longer_reported_is_unknown() -> None:
    desk = Desk()
    desk.say(gpu0=P, gpu1=P)
    desk.say(gpu0=P)
    assert desk.verdicts == {"gpu0": P, "gpu1": U}
    assert desk.summary("gpu1") == "no longer reported"


def test_silence_bridges_while_serving_and_then_turns_unknown() -> None:
    desk = Desk(serving=True, unknown_for_s=5.0)
    desk.say(gpu0=P)
    measured = desk.track.results[0].measured_mono_s
    desk.now += 1
    desk.track.silence("no answer within 1 s", desk.at())
    assert desk.verdicts == {"gpu0": P}
    assert desk.track.results[0].raw_verdict is U
    assert desk.track.results[0].measured_mono_s == measured  # old evidence does not get younger
    assert desk.track.due_mono_s() == desk.now + 5
    desk.now += 5
    desk.track.silence("no answer within 1 s", desk.at())
    assert desk.verdicts == {"gpu0": U}


def test_silence_before_any_answer_is_unknown_on_the_node() -> None:
    desk = Desk()
    desk.track.silence("no answer within 1 s", desk.at())
    assert desk.verdicts == {"node": U}
    desk.say(gpu0=P)
    assert desk.verdicts == {"gpu0": P}


def test_a_held_failure_shows_what_it_rests_on_and_since_when() -> None:
    desk = Desk(clear_for_s=10.0)
    desk.say(gpu0=Finding("gpu0", F, "link 3 is down", observed=17, serving_class=ServingClass.IMMEDIATE))
    began = desk.track.results[0].first_seen_s
    desk.say(gpu0=P)
    (held,) = desk.track.results
    assert (held.verdict, held.raw_verdict, held.serving_class) == (F, P, ServingClass.IMMEDIATE)
    assert held.finding.summary == "link 3 is down (note: last reading PASS, held until 10 s of PASS)"
    assert (held.finding.observed, held.first_seen_s) == (17, began)
    desk.say(gpu0=P, after_s=10.0)
    assert desk.verdicts == {"gpu0": P}


def test_a_lighter_finding_does_not_soften_a_sticky_failure() -> None:
    desk = Desk(sticky=True)
    desk.say(gpu0=Finding("gpu0", F, "Xid 79", serving_class=ServingClass.IMMEDIATE))
    desk.say(gpu0=Finding("gpu0", F, "Xid 31", serving_class=ServingClass.INFO))
    (kept,) = desk.track.results
    assert (kept.finding.summary, kept.serving_class) == ("Xid 79", ServingClass.IMMEDIATE)


def test_forgetting_ends_a_sticky_failure_and_lets_its_subject_go() -> None:
    desk = Desk(sticky=True)
    desk.say(gpu0=F, gpu1=F)
    desk.say(gpu0=P, gpu1=P)
    assert desk.verdicts == {"gpu0": F, "gpu1": F}
    desk.track.forget("gpu0")
    desk.say(gpu0=P, gpu1=P)
    assert desk.verdicts == {"gpu0": P, "gpu1": F}
    desk.track.forget(None)
    desk.say(gpu0=P)
    assert desk.verdicts == {"gpu0": P}


def test_only_what_is_news_is_a_change() -> None:
    desk = Desk()
    (new,) = desk.say(gpu0=Finding("gpu0", P, "margin 20", observed=20))
    assert new.before is None
    assert desk.say(gpu0=Finding("gpu0", P, "margin 19", observed=19)) == ()
    (failed,) = desk.say(gpu0=Finding("gpu0", F, "margin -1"))
    assert (failed.before and failed.before.verdict, failed.after.verdict) == (P, F)
    assert desk.say(gpu0=Finding("gpu0", F, "margin -2")) == ()
    (second,) = desk.say(gpu0=Finding("gpu0", F, "Xid 79 after Xid 48"), triggered=True)
    assert second.after.finding.summary == "Xid 79 after Xid 48"
    (advice,) = desk.say(
        gpu0=Finding("gpu0", F, "Xid 79 after Xid 48", action=Action(ActionKind.REBOOT, "Reboot."))
    )
    assert advice.after.finding.action.kind is ActionKind.REBOOT


def test_a_pending_failure_is_told_at_its_first_reading() -> None:
    desk = Desk(serving=True, fail_for_s=3.0)
    desk.say(gpu0=P)
    (pending,) = desk.say(gpu0=F)
    assert (pending.after.verdict, pending.after.raw_verdict) == (P, F)
    assert desk.track.due_mono_s() == desk.now + 3
    assert "not confirmed before 3 s" in pending.after.finding.summary


def test_a_carried_result_stands_until_the_first_answer() -> None:
    desk = Desk()
    desk.track.seed(result("a.check", "gpu0", P, measured_mono_s=50.0))
    desk.track.seed(result("a.check", "gpu9", P, measured_mono_s=50.0))
    assert all(r.carried and r.measured_mono_s == 50.0 for r in desk.track.results)
    desk.say(gpu0=P)
    (measured,) = desk.track.results  # gpu9 was of an earlier profile: nobody expects it
    assert (measured.carried, measured.measured_mono_s) == (False, 101.0)


def test_a_carried_sticky_failure_outlives_the_restart_even_when_nothing_reports_it() -> None:
    desk = Desk(sticky=True)
    desk.track.seed(result("a.check", "gpu0", F))
    desk.say(gpu1=P)
    assert desk.verdicts == {"gpu0": F, "gpu1": P}
    desk.say(gpu0=P, gpu1=P)
    assert desk.verdicts == {"gpu0": F, "gpu1": P}


def test_after_a_new_profile_old_verdicts_do_not_admit_and_vanished_subjects_go() -> None:
    desk = Desk()
    desk.say(gpu0=P, gpu1=P)
    desk.track.profile_changed(plan_check(desk.check, profile()), desk.at())
    assert desk.verdicts == {"gpu0": U, "gpu1": U}
    desk.say(gpu0=P)
    assert desk.verdicts == {"gpu0": P}


@pytest.mark.parametrize(
    ("check", "verdict", "expected"),
    [
        ({}, W, ServingClass.INFO),
        ({"sticky": True}, F, ServingClass.HARD),
        ({"waivable": False}, F, ServingClass.HARD),
        ({"serving_class": ServingClass.IMMEDIATE}, F, ServingClass.IMMEDIATE),
    ],
)
def test_drift_by_a_new_profile_warns_a_serving_engine_and_gates_the_next_launch(
    check: dict[str, Any], verdict: Verdict, expected: ServingClass
) -> None:
    desk = Desk(serving=True, **check)
    desk.say(gpu0=P)
    desk.track.profile_changed(plan_check(desk.check, profile()), desk.at())
    assert desk.verdicts == {"gpu0": P}  # bridged
    desk.say(gpu0=F)
    (drifted,) = desk.track.results
    assert (drifted.verdict, drifted.raw_verdict, drifted.serving_class) == (verdict, F, expected)
    desk.say(gpu0=F)
    assert desk.track.results[0].serving_class is expected
    desk.serving = False
    desk.say(gpu0=F)
    assert desk.verdicts == {"gpu0": F}


def test_a_failure_after_the_drift_was_repaired_is_a_fault_again() -> None:
    desk = Desk(serving=True)
    desk.say(gpu0=P)
    desk.track.profile_changed(plan_check(desk.check, profile()), desk.at())
    desk.say(gpu0=F)
    desk.say(gpu0=P)
    desk.say(gpu0=F)
    assert desk.track.results[0].serving_class is ServingClass.HARD


def test_a_check_switched_off_shows_skip_alone_even_after_a_sticky_failure() -> None:
    desk = Desk(sticky=True)
    desk.say(gpu0=F, node=F)
    off = profile(checks={"a.check": CheckOverride(enabled=False)})
    desk.track.profile_changed(plan_check(desk.check, off), desk.at())
    desk.say(node=S)
    assert desk.verdicts == {"node": S}


def test_the_profile_changes_times_and_class() -> None:
    override = CheckOverride(
        period_s=1, deadline_s=2, serving_class="soft", fail_for_s=3, clear_for_s=4, unknown_for_s=5
    )
    plan = plan_check(make_check("a.check"), profile(checks={"a.check": override}))
    assert (plan.period_s, plan.deadline_s, plan.serving_class) == (1, 2, ServingClass.SOFT)
    assert (plan.fail_for_s, plan.clear_for_s, plan.unknown_for_s) == (3, 4, 5)
    assert (plan.valid_for_s(serving=False), plan.valid_for_s(serving=True)) == (4, 9)


def _fail(serving_class: ServingClass) -> Finding:
    return Finding("gpu0", F, f"reads {serving_class}", serving_class=serving_class)


def _class(desk: Desk) -> ServingClass:
    (found,) = desk.track.results
    return found.serving_class


def _brake_confirmed() -> Desk:
    desk = Desk(serving=True, fail_for_s=6.0, clear_for_s=5.0)
    desk.say(gpu0=P)
    for _ in range(4):
        desk.say(gpu0=_fail(ServingClass.SOFT), after_s=2.0)
    assert (desk.verdicts["gpu0"], _class(desk)) == (F, ServingClass.SOFT)
    return desk


def test_one_hard_sample_on_a_confirmed_soft_fault_closes_nothing() -> None:
    desk = _brake_confirmed()
    desk.say(gpu0=_fail(ServingClass.HARD), after_s=2.0)
    assert (desk.verdicts["gpu0"], _class(desk)) == (F, ServingClass.SOFT)
    assert desk.track.due_mono_s() == desk.now + 6.0
    desk.say(gpu0=_fail(ServingClass.SOFT), after_s=2.0)
    desk.say(gpu0=_fail(ServingClass.HARD), after_s=5.0)
    assert _class(desk) is ServingClass.SOFT


def test_a_fault_that_stays_worse_counts_after_its_own_time() -> None:
    desk = _brake_confirmed()
    desk.say(gpu0=_fail(ServingClass.HARD), after_s=2.0)
    desk.say(gpu0=U, after_s=2.0)
    desk.say(gpu0=_fail(ServingClass.HARD), after_s=4.0)
    assert _class(desk) is ServingClass.HARD


def test_a_fault_counts_with_the_class_that_lasted_when_it_is_confirmed() -> None:
    desk = Desk(serving=True, fail_for_s=6.0)
    desk.say(gpu0=P)
    desk.say(gpu0=_fail(ServingClass.SOFT), after_s=2.0)
    desk.say(gpu0=_fail(ServingClass.HARD), after_s=6.0)
    assert (desk.verdicts["gpu0"], _class(desk)) == (F, ServingClass.SOFT)


def test_a_worse_fault_counts_at_once_where_one_sample_is_enough() -> None:
    desk = _brake_confirmed()
    desk.say(gpu0=_fail(ServingClass.IMMEDIATE), after_s=2.0)
    assert _class(desk) is ServingClass.IMMEDIATE
    closed = _brake_confirmed()
    closed.serving = False
    closed.say(gpu0=_fail(ServingClass.HARD), after_s=2.0)
    assert _class(closed) is ServingClass.HARD
