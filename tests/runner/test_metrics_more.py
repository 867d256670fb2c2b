"""What /metrics says for alerts: findings with their action, holds, groups, checklist, the engine's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from check_cases import run_twice
from fake_h200 import h200_node, h200_profile
from prometheus_client.parser import text_string_to_metric_families
from runner_kit import result, snapshot

from agent.checks.ports_counters import totals
from agent.checks.registry import load_all
from agent.metrics import GateSample, render_metrics
from agent.metrics_more import ChecklistSample, GroupSample, HoldSample, More, checklist_sample
from agent.model import Action, ActionKind, GateState, Result, Verdict

P, W, F, U = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN


def samples(more: More, *results: Result, gates: tuple[GateSample, ...] = ()) -> dict[str, list[Any]]:
    text = render_metrics(snapshot(*results), gates, durations_s={}, now_mono_s=1000.0, more=more).decode()
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_findings_name_their_action_and_only_what_counts_is_there() -> None:
    play = Action(ActionKind.APPLY_PLAY, "Apply it.", "nic")
    bad = result("nic.config", "mlx5_0", F)
    bad = replace(bad, finding=replace(bad.finding, action=play))
    waived = replace(result("gpu.ecc", "gpu1", F), waived=True)
    shadow = replace(result("gpu.ecc", "gpu2", F), shadow=True)
    seen = samples(More(), bad, waived, shadow, result("gpu.ecc", "gpu3", P), result("gpu.ecc", "gpu4", U))
    assert seen["nodegate_check_finding"] == [
        ({"check": "gpu.ecc", "subject": "gpu4", "verdict": "UNKNOWN", "action": "none", "play": ""}, 1),
        (
            {
                "check": "nic.config",
                "subject": "mlx5_0",
                "verdict": "FAIL",
                "action": "apply_play",
                "play": "nic",
            },
            1,
        ),
    ]


def test_the_action_is_that_of_whoever_explains() -> None:
    more = More(action_of=lambda _: Action(ActionKind.REBOOT, "Reboot."))
    ((labels, _),) = samples(more, result("x", "gpu0", F))["nodegate_check_finding"]
    assert labels["action"] == "reboot"


def test_holds_groups_and_the_time_in_a_state() -> None:
    more = More(
        holds=(HoldSample("maintenance", "", 60.0), HoldSample("force_open", "a", 5.0)),
        groups=(GroupSample("a", "n1", 1, 2),),
        mode="manage",
    )
    seen = samples(more, gates=(GateSample("a", GateState.MEMBER, False, 12.5),))
    assert seen["nodegate_hold_age_seconds"] == [
        ({"hold": "maintenance", "engine": ""}, 60),
        ({"hold": "force_open", "engine": "a"}, 5),
    ]
    assert seen["nodegate_group_members"] == [({"engine": "a", "group": "n1", "rank": "1"}, 2)]
    assert seen["nodegate_gate_state_seconds"] == [({"engine": "a"}, 12.5)]
    assert seen["nodegate_mode"] == [({"mode": "manage"}, 1)]
    assert "nodegate_checklist_verdict" not in seen


@pytest.mark.parametrize(("verdict", "shown"), [(None, "RUNNING"), ("FAIL", "FAIL"), ("", "INTERRUPTED")])
def test_the_checklist(verdict: str | None, shown: str) -> None:
    view = {"name": "post-maintenance", "verdict": verdict, "done": 3, "total": 9, "run_id": "r"}
    view["running"] = verdict is None
    run = checklist_sample(view)
    assert run == ChecklistSample("post-maintenance", shown, 3, 9)
    seen = samples(More(checklist=run))
    assert seen["nodegate_checklist_verdict"] == [({"checklist": "post-maintenance", "verdict": shown}, 1)]
    assert [value for _, value in seen["nodegate_checklist_steps"]] == [3, 9]
    assert checklist_sample(None) is None


#: What each check measures on the fake node, whose engine exports neither its tokens nor its queue.
MEASURED = {
    "engine.pressure": {
        "engine_requests_running",
        "engine_preemptions_total",
        "engine_kv_cache_used_ratio",
    },
    "engine.memory": {"engine_host_memory_bytes"},
    "engine.latency": {"engine_latency_seconds"},
    "gpu.memory_growth": {"gpu_memory_used_ratio"},
}


@pytest.mark.parametrize("check", MEASURED)
def test_checks_of_an_engine_measure(check: str) -> None:
    findings = run_twice(load_all()[check], h200_node(), h200_profile())
    for finding in findings.values():
        assert {measure.name for measure in finding.measures} == MEASURED[check], finding


@pytest.mark.parametrize("subject", ['a"b', "a\\b", "a\nb", "a\rb", "half \udcff of one", "\x00", "x" * 9000])
def test_no_name_takes_the_page_away(subject: str) -> None:
    more = More(groups=[GroupSample("main", subject, 0, 2)], holds=[HoldSample("drain", subject, 1.0)])
    gate = GateSample(subject, GateState.SERVING, True)
    seen = samples(more, result("gpu.ecc", subject, F), gates=(gate,))
    shown = subject.encode("utf-8", "replace").decode()
    ((labels, _),) = seen["nodegate_check_finding"]
    assert labels["subject"] == shown
    assert seen["nodegate_gate_ready"] == [({"engine": shown}, 1)]


def test_a_counter_by_any_name_has_a_metric_that_prometheus_reads() -> None:
    (measure,) = totals("roce", {"hw_counters/RX-odd.name 0": 3})
    assert measure.name == "roce_rx_odd_name_0_total"
