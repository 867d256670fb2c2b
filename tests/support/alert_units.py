"""A small test of each alert rule: series that must make it fire, and ones next to them that must not."""

from __future__ import annotations

from typing import Any

from alert_series import fires, one_test, promtool_file, rules

NODE = {"node": "n1", "instance": "n1:9470", "job": "nodegate"}
OTHER = {"node": "n2", "instance": "n2:9470", "job": "nodegate"}
Series = list[dict[str, str]]


def line(name: str, values: str, node: dict[str, str] = NODE, **labels: str) -> dict[str, str]:
    """One series of a target."""
    inside = ", ".join(f'{key}="{value}"' for key, value in {**node, **labels}.items())
    return {"series": f"{name}{{{inside}}}", "values": values}


def gate(ready: str, state: str, node: dict[str, str] = NODE, engine: str = "glm") -> Series:
    """A gate: whether it is ready, and one state that it is in all the time."""
    return [
        line("nodegate_gate_ready", ready, node, engine=engine),
        line("nodegate_gate_state", "1+0x600", node, engine=engine, state=state),
    ]


def finding(check: str, subject: str, verdict: str, action: str, play: str = "") -> dict[str, str]:
    """What a check has found, all the time."""
    said = {"check": check, "subject": subject, "verdict": verdict, "action": action, "play": play}
    return line("nodegate_check_finding", "1+0x600", **said)


def verdict(check: str, kind: str = "WARN") -> dict[str, str]:
    """A verdict on engine glm, all the time."""
    return line("nodegate_check_verdict", "1+0x600", check=check, subject="engine:glm", verdict=kind)


HELD = line("nodegate_hold_age_seconds", "28500+15x200", hold="maintenance", engine="")
CRASHED = line("nodegate_gate_state", "1+0x4 0+0x600", engine="glm", state="failed")
OBSERVES = line("nodegate_mode", "1+0x600", mode="observe")
NIC = {"check": "nic.config", "subject": "mlx5_0", "action": "apply_play", "play": "nic"}
LEAK = {"check": "engine.memory", "subject": "engine:glm", "verdict": "WARN", "engine": "glm"}
RANK = {"check": "gpu.memory_growth", "subject": "gpu3", "verdict": "WARN"}
GLM = {**NODE, "engine": "glm"}
USUAL = [
    line("nodegate_engine_generation_tokens_total", "0+15000x480 7200000+9000x240", engine="glm"),
    line("nodegate_engine_requests_running", "12+0x720", engine="glm"),
]
QUIET = [
    line("nodegate_engine_generation_tokens_total", "0+15000x480 7200000+3000x240", engine="glm"),
    line("nodegate_engine_requests_running", "12+0x480 3+0x240", engine="glm"),
]
LATENCY = [
    line("nodegate_engine_latency_seconds", "0.9+0x600", engine="glm", kind="first_token"),
    line("nodegate_engine_usual_latency_seconds", "0.3+0x600", engine="glm", kind="first_token"),
]
HIT = line("nodegate_engine_prefix_cache_hit_ratio", "0.07+0x600", engine="glm")
SERVICE = [*gate("1+0x600", "serving"), *gate("1+0x20 0+0x600", "failed", OTHER)]
MINIMUM = {"series": 'nodegate:pool:minimum_ready{pool="glm"}', "values": "2+0x600"}
POOL = {**NODE, "pool": "chat"}
SLEEPS = [line("up", "0+0x600"), line("nodegate_gate_state", "1+0x3", engine="glm", state="maintenance")]
VERSIONS = [
    line("nodegate_build_info", "1+0x600", platform="b300", version="1"),
    line("nodegate_build_info", "1+0x600", OTHER, platform="b300", version="2"),
]
#: Alert, series, when, and the labels it fires with; none = it must be silent.
CASES: tuple[tuple[str, Series, str, dict[str, str] | None], ...] = (
    ("NodegatePoolBelowMinimum", [*SERVICE, MINIMUM], "5m", None),
    ("NodegatePoolBelowMinimum", [*SERVICE, MINIMUM], "8m", {"pool": "glm", "$value": "1"}),
    ("NodegatePoolBelowMinimum", SERVICE, "8m", None),
    ("NodegatePoolBelowMinimum", gate("1+0x20", "serving"), "15m", {"pool": "glm", "$value": "0"}),
    ("NodegatePoolBelowMinimum", [*gate("0+0x600", "failed"), OBSERVES], "8m", None),
    ("NodegatePoolBelowMinimum", gate("0+0x600", "failed", POOL), "8m", {"pool": "chat", "$value": "0"}),
    ("NodegateAgentDown", [line("up", "1+0x20 0+0x20")], "6m", None),
    ("NodegateAgentDown", [line("up", "1+0x20 0+0x20")], "8m", NODE),
    ("NodegateAgentDown", SLEEPS, "10m", None),
    ("NodegateSnapshotStale", [line("nodegate_snapshot_age_seconds", "0+15x40")], "2m", None),
    (
        "NodegateSnapshotStale",
        [line("nodegate_snapshot_age_seconds", "0+15x40")],
        "8m",
        {**NODE, "$value": "8m 0s"},
    ),
    ("NodegateGateClosed", gate("0+0x600", "failed"), "4m", None),
    ("NodegateGateClosed", gate("0+0x600", "failed"), "6m", GLM),
    ("NodegateGateClosed", gate("0+0x600", "member"), "6m", None),
    ("NodegateGateClosed", gate("0+0x600", "stopped"), "6m", None),
    ("NodegateGateClosed", [*gate("0+0x600", "preflight"), OBSERVES], "6m", None),
    ("NodegateGateClosed", gate("0+0x600", "preflight"), "6m", GLM),
    ("NodegateGateClosed", gate("0+0x600", "launching"), "35m", None),
    ("NodegateGateClosed", gate("0+0x600", "warming"), "46m", GLM),
    ("NodegateGateClosed", [*gate("0+0x600", "launching"), CRASHED], "8m", GLM),
    ("NodegateDegraded", gate("1+0x600", "degraded"), "9m", None),
    ("NodegateDegraded", gate("1+0x600", "degraded"), "11m", {**GLM, "state": "degraded"}),
    (
        "NodegateForcedOpen",
        [line("nodegate_hold_age_seconds", "0+15x40", hold="force_open", engine="glm")],
        "1m",
        {**GLM, "hold": "force_open"},
    ),
    ("NodegateForcedOpen", [HELD], "1m", None),
    ("NodegateMaintenanceTooLong", [HELD], "5m", None),
    ("NodegateMaintenanceTooLong", [HELD], "8m", {**NODE, "hold": "maintenance", "$value": "8h 3m 0s"}),
    (
        "NodegateChecklistFailed",
        [line("nodegate_checklist_verdict", "1+0x40", checklist="post-maintenance", verdict="FAIL")],
        "1m",
        {**NODE, "checklist": "post-maintenance", "verdict": "FAIL"},
    ),
    (
        "NodegateChecklistFailed",
        [line("nodegate_checklist_verdict", "1+0x40", checklist="post-maintenance", verdict="RUNNING")],
        "1m",
        None,
    ),
    (
        "NodegateWaiverActive",
        [line("nodegate_check_waived", "1+0x600", check="gpu.ecc", subject="gpu1")],
        "61m",
        {**NODE, "check": "gpu.ecc", "subject": "gpu1"},
    ),
    (
        "NodegateWaiverActive",
        [line("nodegate_check_waived", "1+0x600", check="gpu.ecc", subject="gpu1")],
        "50m",
        None,
    ),
    ("NodegateJournalUnhealthy", [line("nodegate_journal_healthy", "0+0x40")], "4m", None),
    ("NodegateJournalUnhealthy", [line("nodegate_journal_healthy", "0+0x40")], "6m", NODE),
    ("NodegateVersionsDiffer", VERSIONS, "61m", {"platform": "b300", "$value": "2"}),
    ("NodegateVersionsDiffer", VERSIONS[:1], "61m", None),
    (
        "NodegateCheckFailing",
        [finding("nic.config", "mlx5_0", "FAIL", "apply_play", "nic")],
        "6m",
        {**NODE, **NIC, "verdict": "FAIL"},
    ),
    ("NodegateCheckFailing", [finding("nic.config", "mlx5_0", "FAIL", "apply_play"), HELD], "6m", None),
    ("NodegateCheckFailing", [finding("engine.memory", "engine:glm", "FAIL", "none")], "6m", None),
    ("NodegateCheckUnknown", [finding("bmc.air", "node", "UNKNOWN", "none")], "14m", None),
    (
        "NodegateCheckUnknown",
        [finding("bmc.air", "node", "UNKNOWN", "none")],
        "16m",
        {**NODE, "check": "bmc.air", "subject": "node", "verdict": "UNKNOWN", "action": "none", "play": ""},
    ),
    (
        "NodegateCheckUnknown",
        [{**finding("bmc.air", "node", "UNKNOWN", "none"), "values": "1+0x39 stale 1+0x600"}],
        "16m",
        {**NODE, "check": "bmc.air", "subject": "node", "verdict": "UNKNOWN", "action": "none", "play": ""},
    ),
    ("NodegateTokensDropped", USUAL, "119m", None),
    ("NodegateTokensDropped", USUAL, "135m", {**GLM, "$value": "600"}),
    ("NodegateTokensDropped", QUIET, "135m", None),
    ("NodegateLatencyRisen", [*LATENCY, verdict("engine.latency")], "6m", {**GLM, "job": "", "$value": "3"}),
    ("NodegateLatencyRisen", [*LATENCY, verdict("engine.latency", "PASS")], "6m", None),
    (
        "NodegateEngineMemoryGrows",
        [finding("engine.memory", "engine:glm", "WARN", "restart_engine")],
        "11m",
        {**NODE, **LEAK, "play": ""},
    ),
    ("NodegateEngineMemoryGrows", [finding("host.memory", "node", "WARN", "none")], "11m", None),
    (
        "NodegateGpuMemoryGrows",
        [finding("gpu.memory_growth", "gpu3", "WARN", "restart_engine")],
        "11m",
        {**NODE, **RANK},
    ),
    ("NodegateGpuMemoryGrows", [finding("gpu.ecc", "gpu3", "WARN", "none")], "11m", None),
    ("NodegatePromptsChanged", [HIT, verdict("engine.prefix_cache")], "2m", {**GLM, "$value": "7%"}),
    ("NodegatePromptsChanged", [HIT, verdict("engine.prefix_cache", "PASS")], "2m", None),
)
#: Alerts that a scene plays instead, both ways.
IN_SCENES = frozenset({"NodegateGroupSplit", "NodegateRowMarginShrinks"})


def every_alert() -> str:
    """The promtool file of all cases."""
    tests: list[dict[str, Any]] = []
    for alert, series, at, labels in CASES:
        name = f"{alert} at {at}: {'silent' if labels is None else 'fires'}"
        tests.append(one_test(name, series, [fires(at, alert, *([] if labels is None else [labels]))]))
    return promtool_file(tests, "Series made by hand, one small case each.", evaluated_s=60)


def alerts() -> set[str]:
    """The names of all alerts."""
    return {rule["alert"] for rule in rules() if "alert" in rule}
