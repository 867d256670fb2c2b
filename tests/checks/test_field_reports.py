"""Failures that others met in the field, each named by its public report, must be right here."""

from typing import Any

import pytest
from check_cases import run_check, run_twice
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode

from agent.checks.registry import load_all
from agent.model import ActionKind, Finding, ServingClass, Verdict

CHECKS = load_all()
PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN
OFF_BUS = "3,900,4900000000,-;NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus."


def judge(check_id: str, node: FakeNode, profile: dict[str, Any] | None = None) -> dict[str, Finding]:
    return run_twice(CHECKS[check_id], node, h200_profile(profile))


def everything(node: FakeNode, profile: dict[str, Any] | None = None) -> dict[tuple[str, str], Finding]:
    """Every check that applies to the node, twice where growth is judged."""
    return {
        (check_id, subject): finding
        for check_id in CHECKS
        for subject, finding in judge(check_id, node, profile).items()
        if finding.verdict is not Verdict.SKIP
    }


def of(verdict: Verdict, findings: dict[tuple[str, str], Finding]) -> set[tuple[str, str]]:
    return {key for key, finding in findings.items() if finding.verdict is verdict}


@pytest.mark.parametrize("report", ["NVIDIA/DCGM#242", "NVIDIA/DCGM#270"])
def test_75_degrees_with_margin_is_no_thermal_fault(report: str) -> None:
    node = h200_node()
    node.set("nvml.gpus.3.thermal.temperature_c", 75)
    node.set("nvml.gpus.3.thermal.margin_c", 10)
    node.set("nvml.gpus.3.power.event_reasons", 0x4)
    assert of(PASS, everything(node)) == everything(node).keys()


def test_a_power_brake_stays_seen_for_as_long_as_it_lasts() -> None:
    """NVIDIA/NVSentinel#1666: hardware power brake asserted for 36 h, unseen."""
    node = h200_node()
    node.set("nvml.gpus.3.power.event_reasons", 0x80)
    for _ in range(36):
        node.clock.now_s += 3600
        finding = judge("gpu.throttle", node)["gpu3"]
        assert finding.verdict is FAIL
        assert finding.serving_class is ServingClass.SOFT


def test_a_harmless_power_event_tells_nobody_to_call_support() -> None:
    """NVIDIA/NVSentinel#465."""
    node = h200_node()
    node.set("nvml.gpus.3.power.event_reasons", 0x4)
    node.data["kmsg"].append("4,900,4900000000,-;NVRM: Xid (PCI:0000:5d:00): 63, pid=1, Row Remapper")
    for check_id in ("gpu.throttle", "gpu.power_limit", "xid"):
        finding = judge(check_id, node)["gpu3"]
        assert finding.verdict is PASS
        assert finding.action.kind is ActionKind.NONE


def test_a_dead_fabric_is_seen_although_every_gpu_looks_fine() -> None:
    """NVIDIA/NVSentinel#883, #889: fabric manager dead for 20 days."""
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.fabric.state", 1)
    assert of(FAIL, everything(node)) == {("nvlink.fabric", f"gpu{slot}") for slot in range(8)}
    assert len(of(PASS, everything(node))) == len(everything(node)) - 8


def test_a_second_port_that_is_not_used_is_ignored() -> None:
    """NVIDIA/NVSentinel#1361: intentionally unused second port marked fatal."""
    node = h200_node()
    for slot in range(8):
        port = f"files:sys/class/infiniband/mlx5_{slot}/ports/2"
        node.set(f"{port}/state", "1: DOWN")
        node.set(f"{port}/phys_state", "3: Disabled")
        node.set(f"{port}/counters/link_downed", "9")
    assert of(PASS, everything(node)) == everything(node).keys()


def test_a_gpu_off_the_bus_without_any_xid() -> None:
    """NVIDIA/NVSentinel#155."""
    node = h200_node()
    node.data["kmsg"].append(OFF_BUS)
    findings = everything(node)
    assert of(FAIL, findings) == {("xid", "gpu3")}
    assert findings["xid", "gpu3"].serving_class is ServingClass.IMMEDIATE


def test_a_hang_on_one_gpu_does_not_hide_the_ecc_fault_of_another() -> None:
    """NVIDIA/NVSentinel#1748: a hang killed the monitor 49 times and the ECC fault was never reported."""
    node = h200_node()
    node.set("nvml.gpus.2.memory", {"error": "TIMEOUT"})
    node.set("nvml.gpus.5.memory.ecc_uncorrected_volatile", 3)
    findings = judge("gpu.ecc", node)
    assert findings.pop("gpu2").verdict is UNKNOWN
    assert findings.pop("gpu5").verdict is FAIL
    assert {finding.verdict for finding in findings.values()} == {PASS}


def test_a_node_that_is_well_again_passes_again() -> None:
    """NVIDIA/NVSentinel#458: node stays cordoned after recovery."""
    node = h200_node()
    before = {
        "nvml.gpus.3.power.event_reasons": 1,
        "nvml.gpus.3.nvlink.states.5": True,
        "net.eth3.link.carrier": True,
    }
    for path, value in {
        "nvml.gpus.3.power.event_reasons": 0x48,
        "nvml.gpus.3.nvlink.states.5": False,
        "net.eth3.link.carrier": False,
    }.items():
        node.set(path, value)
    assert of(FAIL, everything(node)) == {
        ("gpu.throttle", "gpu3"),
        ("nvlink.links", "gpu3"),
        ("nic.port", "mlx5_3/1"),
    }
    for path, value in before.items():
        node.set(path, value)
    assert of(PASS, everything(node)) == everything(node).keys()


def test_a_flap_at_bring_up_ends_by_itself() -> None:
    """leptonai/gpud#1247: a flap at bring-up drained the node until someone cleared it."""
    node = h200_node()
    check, profile = CHECKS["roce.errors"], h200_profile()
    node.set("files:sys/class/infiniband/mlx5_3/ports/1/counters/link_downed", "40")
    assert run_check(check, node, profile)["mlx5_3/1"].verdict is UNKNOWN
    node.clock.now_s += 10
    assert run_check(check, node, profile)["mlx5_3/1"].verdict is PASS
    node.set("files:sys/class/infiniband/mlx5_3/ports/1/counters/link_downed", "41")
    seen = []
    for _ in range(8):
        node.clock.now_s += 10
        seen.append(run_check(check, node, profile)["mlx5_3/1"].verdict)
    assert seen[0] is FAIL
    assert seen[-1] is PASS


def test_an_operator_can_clear_an_xid_on_the_node_itself() -> None:
    """leptonai/gpud#1072: no local way to reset a sticky Xid state."""
    node = h200_node()
    node.data["kmsg"].append(OFF_BUS)
    assert judge("xid", node)["gpu3"].verdict is FAIL
    node.sources.kmsg.clear(node.clock.mono_s())
    assert judge("xid", node)["gpu3"].verdict is PASS
    node.data["kmsg"].append("3,901,5000500000,-;NVRM: Xid (PCI:0000:5d:00): 95, pid=1, Uncontained")
    assert judge("xid", node)["gpu3"].verdict is FAIL, "a new fault after the clearing counts"


@pytest.mark.parametrize("margin_c", [0, -1, -7])
def test_a_margin_of_zero_or_less_on_a_cool_gpu_is_no_alarm(margin_c: int) -> None:
    """leptonai/gpud#1208."""
    node = h200_node()
    node.set("nvml.gpus.3.thermal.margin_c", margin_c)
    assert judge("gpu.thermal_margin", node)["gpu3"].verdict is WARN
    node.set("nvml.gpus.3.thermal.temperature_c", 88)
    assert judge("gpu.thermal_margin", node)["gpu3"].verdict is FAIL


def test_all_nvlinks_inactive_is_not_healthy() -> None:
    """leptonai/gpud#1085."""
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.nvlink.states", [False] * 18)
    assert {finding.verdict for finding in judge("nvlink.links", node).values()} == {FAIL}


def test_a_source_that_serves_old_values_is_not_healthy() -> None:
    """NVIDIA/gpu-monitoring-tools#188: stale data served, health says fine."""
    node = h200_node()
    node.nvml.stale_s = 3600
    verdicts = {
        finding.verdict for (check_id, _), finding in everything(node).items() if check_id == "gpu.lost"
    }
    assert verdicts == {UNKNOWN}


def test_twelve_links_by_design() -> None:
    """Azure/azurehpc-health-checks#162: 18 links assumed, the SKU has 12 by design."""
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.nvlink.states", [True] * 12)
        node.set(f"nvml.gpus.{slot}.nvlink.speeds_mb_s", [26562] * 12)
    assert {f.verdict for f in judge("nvlink.links", node, {"nvlink": {"links_per_gpu": 12}}).values()} == {
        PASS
    }
    assert {f.verdict for f in judge("nvlink.links", node).values()} == {FAIL}


def test_nothing_starts_as_healthy() -> None:
    """kubernetes/node-problem-detector#645: unprobed conditions start as healthy."""
    node = h200_node()
    node.data["engines"].clear()
    for check_id in ("nvlink.errors", "roce.errors", "engine.health"):
        findings = run_check(CHECKS[check_id], node, h200_profile())
        assert {finding.verdict for finding in findings.values()} == {UNKNOWN}


@pytest.mark.parametrize("report", ["vllm-project/vllm#36960", "vllm-project/vllm#39863"])
def test_health_200_with_a_hung_engine_is_not_healthy(report: str) -> None:
    node = h200_node()
    node.set("engines.glm", {"phase": "warm", "health": {"ok": True, "age_s": 0.1}})
    node.set("engines.glm.canary", {"verdict": "dead", "age_s": 0.1})
    findings = judge("engine.health", node)
    assert (findings["engine:glm"].verdict, findings["engine:kimi"].verdict) == (FAIL, PASS)


def test_a_busy_engine_is_not_killed() -> None:
    """gonka-ai/gonka#1421: a busy engine times out and is killed."""
    node = h200_node()
    node.set("engines.glm.health", {"ok": False, "age_s": 2.0})
    node.set("engines.glm.canary", {"verdict": "busy", "age_s": 0.1})
    assert judge("engine.health", node)["engine:glm"].verdict is WARN


def test_legacy_nvlink_counters_are_never_read() -> None:
    """The legacy kinds 3 and 4 grow on every healthy Hopper link; fields 161-163 are what counts."""
    node = h200_node()
    judge("nvlink.errors", node)
    read = {path.split(".", 3)[3] for path in node.reads if ".nvlink" in path}
    assert read == {
        "nvlink_errors.replay_errors",
        "nvlink_errors.recovery_errors",
        "nvlink_errors.crc_errors",
    }


def test_a_lost_gpu_fails_once_and_every_other_check_points_there() -> None:
    node = h200_node()
    node.set("nvml.gpus.6.identity.error", "GPU_IS_LOST")
    findings = everything(node)
    assert of(FAIL, findings) == {("gpu.lost", "gpu6")}
    pointing = {key for key, finding in findings.items() if "see gpu.lost" in finding.summary}
    pointing -= of(PASS, findings)
    assert pointing == of(UNKNOWN, findings)
    assert len(pointing) > 11


def test_a_gpu_that_vanished_closes_only_the_engine_that_owns_it() -> None:
    node = h200_node()
    node.remove("nvml.gpus.6")
    node.set("nvml.system.device_count", 7)
    findings = everything(node)
    closing = {
        key
        for key in of(FAIL, findings)
        if (findings[key].serving_class or CHECKS[key[0]].serving_class)
        in (ServingClass.IMMEDIATE, ServingClass.HARD)
    }
    assert closing == {("gpu.lost", "gpu6")}
    # The engine's NUMA binding cannot be told without its GPU; it gates nothing.
    assert {subject for _, subject in of(UNKNOWN, findings)} == {"gpu6", "engine:kimi"}


def test_a_dead_nvml_passes_nothing_about_gpus() -> None:
    node = h200_node()
    node.data["nvml"] = {"error": "DRIVER_NOT_LOADED"}
    verdicts = {
        f.verdict for (check_id, _), f in everything(node).items() if check_id.startswith(("gpu.", "nvlink."))
    }
    assert verdicts == {UNKNOWN}
