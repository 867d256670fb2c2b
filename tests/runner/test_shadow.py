"""Shadow mode, waivers, evidence out of reach: told everywhere, gating nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from runner_kit import make_check, profile, result, snapshot

from agent.check_plan import plan_check
from agent.check_run import Outcome
from agent.check_track import CheckTrack, Moment
from agent.checks.registry import Check
from agent.evaluate import ENGINE_HEALTH, judge
from agent.metrics import render_metrics
from agent.model import Finding, Phase, ServingClass, Verdict
from agent.node_profile import CheckOverride, NodeProfile

P, W, F, U = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN
NOW = 1000.0


def shadowed(*ids: str) -> NodeProfile:
    return profile(checks={id_: CheckOverride(shadow=True) for id_ in ids})


@pytest.mark.parametrize("verdict", [W, F, U])
@pytest.mark.parametrize("cls", list(ServingClass))
def test_a_verdict_in_shadow_is_told_and_gates_nothing(verdict: Verdict, cls: ServingClass) -> None:
    checks = {"x": make_check("x", serving_class=cls)}
    judged = judge(snapshot(result("x", "gpu0", verdict, cls=cls)), shadowed("x"), "glm", checks, NOW)
    assert judged.admits
    assert (judged.immediate, judged.hard, judged.soft) == ((), (), ())
    assert [blocker.check for blocker in judged.info] == ["x"]


def test_a_check_in_shadow_that_has_not_run_is_not_waited_for() -> None:
    checks = {"x": make_check("x"), "y": make_check("y")}
    assert judge(snapshot(), shadowed("x"), "glm", checks, NOW).missing == ("y",)
    health = make_check(
        ENGINE_HEALTH, phases=frozenset({Phase.SERVING}), serving_class=ServingClass.IMMEDIATE
    )
    assert judge(snapshot(), profile(), "glm", {ENGINE_HEALTH: health}, NOW).immediate
    assert not judge(snapshot(), shadowed(ENGINE_HEALTH), "glm", {ENGINE_HEALTH: health}, NOW).immediate


def test_the_profile_decides_and_not_what_an_old_result_says() -> None:
    checks = {"x": make_check("x")}
    claims = replace(result("x", "gpu0", F), shadow=True)
    assert not judge(snapshot(claims), profile(), "glm", checks, NOW).admits


def test_results_say_that_their_check_is_in_shadow() -> None:
    track = CheckTrack(plan_check(make_check("x"), shadowed("x")))
    track.absorb(Outcome((Finding("gpu0", F, "bad"),)), Moment(NOW, NOW, serving=False))
    (found,) = track.results
    assert (found.shadow, found.verdict, found.times) == (True, F, 1)


@pytest.mark.parametrize("cls", list(ServingClass))
def test_evidence_that_may_be_out_of_reach_neither_closes_nor_degrades(cls: ServingClass) -> None:
    def judged(check: Check) -> tuple[int, int, int]:
        found = judge(snapshot(result("x", "node", U, cls=cls)), profile(), "glm", {"x": check}, NOW)
        return len(found.immediate + found.hard), len(found.soft), len(found.info)

    assert judged(make_check("x", serving_class=cls, unknown_blocks_admission=False)) == (0, 0, 1)
    closes = cls in (ServingClass.IMMEDIATE, ServingClass.HARD)
    assert judged(make_check("x", serving_class=cls)) == ((0, 1, 0) if closes else (0, 0, 1))


def test_metrics_tell_what_does_not_count_and_how_often_it_failed() -> None:
    bad = replace(result("x", "gpu0", F, waived=True), times=3)
    seen = replace(result("y", "gpu1", F), shadow=True)
    text = render_metrics(snapshot(bad, seen, result("x", "gpu2", P)), (), durations_s={}, now_mono_s=NOW)
    samples = {
        (sample.name, sample.labels["check"], sample.labels["subject"]): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name in ("nodegate_check_waived", "nodegate_check_shadow", "nodegate_check_failures_total")
    }
    assert samples == {
        ("nodegate_check_waived", "x", "gpu0"): 1.0,
        ("nodegate_check_shadow", "y", "gpu1"): 1.0,
        ("nodegate_check_failures_total", "x", "gpu0"): 3.0,
    }
