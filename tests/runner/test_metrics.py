"""The Prometheus page: names, labels and values, read back by the client library's own parser."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families
from runner_kit import result, snapshot

from agent import __version__
from agent.metrics import GateSample, render_metrics
from agent.model import Finding, GateState, Snapshot, Verdict

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


def margin(subject: str, observed: float, verdict: Verdict, raw: Verdict) -> Finding:
    return Finding(subject, raw, "margin", observed=observed, unit="C")


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


def test_the_margin_of_a_gpu_is_shown_only_as_read_now() -> None:
    now = replace(result("gpu.thermal_margin", "gpu3", P), finding=margin("gpu3", 20, P, P))
    held = replace(result("gpu.thermal_margin", "gpu4", F, raw=P), finding=margin("gpu4", -4, F, F))
    samples = page(snapshot(now, held))
    margins = {key[1]: v for key, v in samples.items() if key[0] == "nodegate_gpu_tlimit_margin_celsius"}
    assert margins == {(("gpu", "3"),): 20}
