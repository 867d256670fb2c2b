"""The Prometheus page: names, labels and values, read back by the client library's own parser."""

from __future__ import annotations

from dataclasses import replace

from check_cases import run_twice
from fake_h200 import h200_node, h200_profile
from prometheus_client.parser import text_string_to_metric_families
from runner_kit import result, snapshot

from agent import __version__
from agent.checks.registry import load_all
from agent.metrics import GateSample, render_metrics
from agent.model import GateState, Measure, Snapshot, Verdict

P, F = Verdict.PASS, Verdict.FAIL
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(shot: Snapshot, *gates: GateSample, journal_healthy: bool | None = None) -> Samples:
    text = render_metrics(
        shot, gates, durations_s={"gpu.lost": 0.25}, now_mono_s=1002.5, journal_healthy=journal_healthy
    ).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labelled(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_gates() -> None:
    samples = page(
        snapshot(), GateSample("a", GateState.SERVING, True), GateSample("b", GateState.FAILED, False)
    )
    assert labelled(samples, "nodegate_gate_ready", engine="a") == 1
    assert labelled(samples, "nodegate_gate_ready", engine="b") == 0
    states = {key[1]: value for key, value in samples.items() if key[0] == "nodegate_gate_state"}
    assert len(states) == 2 * len(GateState)
    assert {labels for labels, value in states.items() if value == 1} == {
        (("engine", "a"), ("state", "serving")),
        (("engine", "b"), ("state", "failed")),
    }


def test_checks_have_one_verdict_each() -> None:
    samples = page(snapshot(result("gpu.lost", "gpu0", P), result("gpu.lost", 'odd"\n', F)))
    verdicts = {key[1]: value for key, value in samples.items() if key[0] == "nodegate_check_verdict"}
    assert len(verdicts) == 2 * len(Verdict)
    assert sum(verdicts.values()) == 2
    assert (
        labelled(samples, "nodegate_check_verdict", check="gpu.lost", subject='odd"\n', verdict="FAIL") == 1
    )
    assert labelled(samples, "nodegate_check_duration_seconds", check="gpu.lost") == 0.25


def test_the_agent_itself() -> None:
    samples = page(snapshot(mono_s=1000.0), journal_healthy=False)
    assert labelled(samples, "nodegate_snapshot_age_seconds") == 2.5
    assert labelled(samples, "nodegate_journal_healthy") == 0
    build = {"version": __version__, "node": "n1", "profile_hash": "0" * 64, "simulated": "false"}
    assert labelled(samples, "nodegate_build_info", **build) == 1


def test_what_checks_measured_is_shown_while_it_is_fresh() -> None:
    heat = (Measure("gpu_temperature_celsius", 64), Measure("gpu_tlimit_margin_celsius", 20))
    errors = (Measure("nvlink_errors_total", 3, "replay"), Measure("nvlink_errors_total", 0, "crc"))
    now = replace(result("gpu.thermal_margin", "gpu3", P), measures=heat)
    links = replace(result("nvlink.errors", "gpu3", P), measures=errors)
    port = replace(result("roce.errors", "mlx5_0/1", P), measures=(Measure("roce_symbol_error_total", 12),))
    old = replace(result("gpu.thermal_margin", "gpu4", P), measures=heat, measured_mono_s=1.0)
    samples = page(snapshot(now, links, port, old))
    assert labelled(samples, "nodegate_gpu_temperature_celsius", gpu="3") == 64
    margins = {key[1]: v for key, v in samples.items() if key[0] == "nodegate_gpu_tlimit_margin_celsius"}
    assert margins == {(("gpu", "3"),): 20}
    assert labelled(samples, "nodegate_nvlink_errors_total", gpu="3", kind="replay") == 3
    assert labelled(samples, "nodegate_nvlink_errors_total", gpu="3", kind="crc") == 0
    assert labelled(samples, "nodegate_roce_symbol_error_total", device="mlx5_0", port="1") == 12


def test_a_ports_counter_is_helped_by_the_drivers_own_name() -> None:
    node, profile = h200_node(), h200_profile()
    findings = run_twice(load_all()["roce.errors"], node, profile)["mlx5_0/1"]
    drops = run_twice(load_all()["roce.lossless_drop"], node, profile)["mlx5_0/1"]
    port = replace(result("roce.errors", "mlx5_0/1", P), measures=findings.measures + drops.measures)
    text = render_metrics(snapshot(port), (), durations_s={}, now_mono_s=1000.0).decode()
    helped = {
        family.name: family.documentation
        for family in text_string_to_metric_families(text)
        if family.name.startswith("nodegate_roce_")
    }
    says = "Counter of the RDMA port, as the driver names it: {}."
    assert helped["nodegate_roce_slow_restart"] == says.format("roce_slow_restart")
    assert helped["nodegate_roce_symbol_error"] == says.format("symbol_error")
    assert helped["nodegate_roce_rx_prio3_discards"] == says.format("rx_prio3_discards")
    assert "roce_roce" not in text
    assert "nodegate_roce_slow_restart_total{" in text
