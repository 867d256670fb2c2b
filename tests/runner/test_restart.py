"""What an agent that restarts on the same boot goes on from: faults and silences, never a PASS."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from runner_kit import BOOT, HandClock, loaded, make_check, profile, result, sources

from agent.check_plan import plan_check
from agent.check_run import Outcome
from agent.check_track import CheckTrack, Moment
from agent.checks.registry import ClearedBy
from agent.errors import ParseError
from agent.model import Finding, Result, ServingClass, Verdict
from agent.runner import Runner
from agent.track_memory import SubjectMemory, memory_from_dict

P, W, F, U = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN


class Life:
    """A track over restarts: results and memories go through JSON, as in the journal."""

    def __init__(self, serving: bool = True, profile_hash: str = "h", **check: Any) -> None:
        self.check = make_check("c", **check)
        self.serving = serving
        self.now = 1000.0
        self.hash = profile_hash
        self.track = self._new()

    def _new(self) -> CheckTrack:
        return CheckTrack(plan_check(self.check, profile()), self.hash)

    def say(self, verdict: Verdict, *, after_s: float = 1.0, **finding: Any) -> Result:
        self.now += after_s
        said = Finding("gpu0", verdict, f"reads {verdict}", **finding)
        self.track.absorb(Outcome((said,)), self.at())
        return self.result

    def at(self) -> Moment:
        return Moment(self.now, 1_000_000 + self.now, self.serving)

    @property
    def result(self) -> Result:
        (found,) = self.track.results
        return found

    def restart(self, *, after_s: float = 2.0, profile_hash: str | None = None) -> None:
        kept, memory = self.result, json.dumps(self.track.memories["gpu0"].to_dict())
        self.now += after_s
        self.hash = profile_hash or self.hash
        self.track = self._new()
        self.track.seed(kept, memory_from_dict(json.loads(memory), self.now), now_mono_s=self.now)


def test_a_fault_that_is_not_confirmed_yet_goes_on_counting() -> None:
    life = Life(fail_for_s=10.0)
    life.say(P)
    life.say(F)
    life.restart(after_s=6.0)
    assert life.say(F, after_s=1.0).verdict is P
    assert life.say(F, after_s=4.0).verdict is F


def test_a_fault_of_long_ago_does_not_go_on_counting() -> None:
    life = Life(fail_for_s=10.0)
    life.say(P)
    life.say(F)
    life.restart(after_s=3600.0)
    assert life.say(F).verdict is not F


def test_a_run_of_passes_before_the_restart_clears_nothing() -> None:
    life = Life(clear_for_s=10.0)
    life.say(F)
    life.say(P, after_s=1.0)
    life.say(P, after_s=9.0)
    life.restart(after_s=2.0)
    assert life.say(P, after_s=1.0).verdict is F
    assert life.say(P, after_s=10.0).verdict is P


def test_missing_evidence_is_bridged_once_and_not_once_an_agent() -> None:
    life = Life(unknown_for_s=20.0)
    life.say(P)
    life.say(U)
    life.restart(after_s=15.0)
    assert life.say(U, after_s=1.0).verdict is P
    assert life.say(U, after_s=5.0).verdict is U


def test_how_often_it_failed_is_remembered_and_a_carried_failure_is_no_new_one() -> None:
    life = Life()
    life.say(F)
    life.say(P)
    assert life.say(F).times == 2
    began = life.result.first_seen_s
    life.restart()
    assert life.result.carried
    assert (life.say(F).times, life.result.first_seen_s) == (2, began)


def test_a_sticky_failure_outlives_a_silence_and_a_restart() -> None:
    life = Life(sticky=True, unknown_for_s=1.0)
    life.say(F)
    life.say(U, after_s=5.0)
    life.restart()
    assert life.say(P).verdict is F


def test_drift_stays_drift_for_a_serving_engine() -> None:
    life = Life()
    life.say(P)
    life.track.profile_changed(plan_check(life.check, profile()), life.at(), "new")
    life.hash = "new"
    assert life.say(F).verdict is W
    life.restart()
    again = life.say(F)
    assert (again.verdict, again.raw_verdict, again.serving_class) == (W, F, ServingClass.INFO)
    life.restart(profile_hash="other")
    assert life.say(F).verdict is F


def test_what_passed_by_another_profile_is_not_taken_over() -> None:
    life = Life()
    life.say(P)
    life.restart(profile_hash="other")
    assert life.track.results == []
    life.say(F)
    life.restart(profile_hash="third")
    assert life.result.verdict is F


def test_a_carried_pass_counts_by_its_age_and_no_longer_than_its_check_says() -> None:
    life = Life(serving=False, period_s=10.0, deadline_s=5.0, unknown_for_s=0.0)
    kept = replace(result("c", "gpu0", P, measured_mono_s=990.0), valid_for_s=1e9)
    life.track.seed(kept, SubjectMemory("h"), now_mono_s=life.now)
    assert (life.result.measured_mono_s, life.result.valid_for_s) == (990.0, 25.0)


@pytest.mark.parametrize(
    "change",
    [
        {"fail_since_mono_s": 5000.0},  # yet to come
        {"unknown_since_mono_s": float("nan")},
        {"run_since_mono_s": [1.0]},  # without its count
        {"run_readings": "many"},
        {"fail_readings": -1},
        {"fail_readings": True},
        {"profile_hash": None, "failed": "yes", "fail_since_mono_s": "now"},
    ],
)
def test_a_garbled_memory_or_one_of_the_future_is_refused(change: dict[str, Any]) -> None:
    stored = {**SubjectMemory("h").to_dict(), **change}
    with pytest.raises(ParseError):
        memory_from_dict(stored, 1000.0)
    with pytest.raises(ParseError):
        memory_from_dict([], 1000.0)
    assert memory_from_dict(None, 1000.0) is None


def test_the_runner_takes_memories_over_and_hands_its_own_out() -> None:
    kept = replace(result("c", "gpu0", F, measured_mono_s=990.0), times=4)
    memory = SubjectMemory("0" * 64, failed=True)
    runner = Runner(
        sources(HandClock()),
        loaded(),
        {"c": make_check("c", sticky=True)},
        on_results=lambda *_: None,
        node="n",
        carried=[kept],
        memories={("c", "gpu0"): memory},
        part_of=lambda subject: f"part of {subject}",
    )
    assert runner.snapshot.boot_id == BOOT
    assert runner.snapshot.results["c", "gpu0"].times == 4
    assert runner.memories()["c", "gpu0"].failed


def test_only_what_an_operator_can_clear_is_cleared() -> None:
    life = Life(sticky=True, clears=frozenset({ClearedBy.REBOOT}))
    life.say(F)
    assert life.track.forget(None) == ["gpu0"]
    held = life.say(P)
    assert held.verdict is F
    assert "held until a reboot" in held.finding.summary


def test_a_reset_that_the_check_sees_ends_a_sticky_failure() -> None:
    life = Life(sticky=True, clears=frozenset({ClearedBy.RESET, ClearedBy.OPERATOR}), clear_for_s=5.0)
    life.say(F)
    assert life.say(P).verdict is F
    assert life.say(P, after_s=5.0).verdict is P
