"""What happened to GPUs in the field, seen by the checks over time (SIMULATED readings)."""

import math
from collections.abc import Callable

import pytest
from check_cases import run_check, run_twice
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode

from agent.checks.registry import load_all
from agent.model import ActionKind, Finding, ServingClass, Verdict
from agent.profile_loader import profile_from_dict

CHECKS = load_all()
PASS, WARN, FAIL, UNKNOWN, SKIP = Verdict
NOT_SUPPORTED = {"error": "NOT_SUPPORTED"}


def watch(
    check_id: str, node: FakeNode, steps: int, period_s: float, change: Callable[[float], dict]
) -> list[dict[str, Finding]]:
    """Run a check every `period_s`; `change` gives what is set at each second since the start."""
    check, profile, start_s = CHECKS[check_id], h200_profile(), node.clock.now_s
    found = []
    for step in range(steps):
        node.clock.now_s = start_s + step * period_s
        for path, value in change(step * period_s).items():
            node.set(path, value)
        found.append(run_check(check, node, profile))
    return found


def heat(slot: int, temperature_c: float, draw_w: float) -> dict:
    return {
        f"nvml.gpus.{slot}.thermal.temperature_c": round(temperature_c),
        f"nvml.gpus.{slot}.thermal.margin_c": round(87 - temperature_c),
        f"nvml.gpus.{slot}.power.draw_w": draw_w,
    }


def test_wrong_air_flow_is_told_long_before_the_gpus_slow_down() -> None:
    """At full load one GPU creeps from 62 C to 87 C in fifteen minutes; the threshold sees only the end."""

    def creeping(at_s: float) -> dict:
        return heat(3, 62 + at_s / 36, 690.0)

    node = h200_node()
    trend = watch("gpu.thermal_trend", node, 84, 10.0, creeping)
    first_warning_s = next(10 * i for i, found in enumerate(trend) if found["gpu3"].verdict is WARN)
    first_failure_s = next(10 * i for i, found in enumerate(trend) if found["gpu3"].verdict is FAIL)
    margin = watch("gpu.thermal_margin", h200_node(), 84, 10.0, creeping)
    threshold_s = next(10 * i for i, found in enumerate(margin) if found["gpu3"].verdict is FAIL)
    assert first_warning_s < 300
    assert first_warning_s < first_failure_s < threshold_s
    assert {found["gpu4"].verdict for found in trend[1:]} == {PASS}


def test_a_failing_pump_warns_while_every_reading_looks_normal() -> None:
    """Coolant flow was not restored: idle GPUs warm up slowly although nobody uses them."""
    found = watch(
        "gpu.thermal_trend",
        h200_node(),
        31,
        10.0,
        lambda s: {k: v for g in range(8) for k, v in heat(g, 35 + s / 15, 78.0).items()},
    )
    assert all(finding.verdict is WARN for finding in found[-1].values())
    effects = {
        finding.serving_class or CHECKS["gpu.thermal_trend"].serving_class for finding in found[-1].values()
    }
    assert effects == {ServingClass.SOFT}, "one loop heats a whole row"


@pytest.mark.parametrize("time_constant_s", [20.0, 60.0, 120.0, 200.0])
def test_a_gpu_that_settles_gives_no_alarm(time_constant_s: float) -> None:
    found = watch(
        "gpu.thermal_trend",
        h200_node(),
        90,
        10.0,
        lambda s: heat(3, 74 - 30 * math.exp(-s / time_constant_s), 690.0),
    )
    assert {each["gpu3"].verdict for each in found[1:]} == {PASS}


def test_a_brake_that_no_poll_sees_is_caught_at_its_first_dip_and_its_rhythm_kept() -> None:
    """A rack PDU at its alarm: 0.6 s every ten seconds, utilisation 100 %, event reasons always read 0x4."""

    def braking(at_s: float) -> dict:
        done = int((at_s + 7) // 10)
        return {
            f"nvml.gpus.{slot}.{field}": value
            for slot in range(8)
            for field, value in (
                ("slowdowns.hw_brake_ns", done * 600_000_000),
                ("power.event_reasons", 4),
                ("power.gpu_utilization_percent", 100),
                ("power.draw_w", 690.0 if at_s % 4 else 391.0),
            )
        }

    node = h200_node()
    found = watch("gpu.power_dips", node, 36, 2.0, braking)
    verdicts = [each["gpu3"].verdict for each in found]
    assert verdicts[0] is UNKNOWN
    assert WARN in verdicts[:5], "within seconds"
    assert verdicts[-1] is FAIL
    last = found[-1]["gpu3"]
    assert "power brake 0.6 s every 10 s, 7 times in 70 s" in last.summary
    assert "draw 391 to 690 W" in last.summary
    assert last.action.kind is not ActionKind.CONTACT_SUPPORT
    assert CHECKS["gpu.power_dips"].serving_class is ServingClass.SOFT
    assert {f.verdict for f in run_check(CHECKS["gpu.throttle"], node, h200_profile()).values()} == {PASS}


def test_a_brake_that_is_over_is_forgotten() -> None:
    node = h200_node()
    found = watch(
        "gpu.power_dips", node, 90, 2.0, lambda s: {"nvml.gpus.3.slowdowns.hw_brake_ns": int(min(s, 6) * 5e8)}
    )
    assert found[5]["gpu3"].verdict is FAIL
    assert found[-1]["gpu3"].verdict is PASS


def test_a_brake_of_36_hours_is_seen() -> None:
    """NVIDIA/NVSentinel#1666."""
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.power.event_reasons", 0x88)
    assert {f.verdict for f in run_check(CHECKS["gpu.throttle"], node, h200_profile()).values()} == {FAIL}


@pytest.mark.parametrize("reasons", [0x0, 0x1, 0x2, 0x4, 0x5, 0x10, 0x100, 0x116])
def test_a_harmless_power_event_calls_nobody(reasons: int) -> None:
    """NVIDIA/NVSentinel#465: a harmless power event told operators to call support."""
    node = h200_node()
    node.set("nvml.gpus.3.power.event_reasons", reasons)
    node.set("nvml.gpus.3.slowdowns.sw_power_cap_ns", 10**15)
    for check_id in ("gpu.throttle", "gpu.power_dips", "gpu.power_limit", "gpu.clocks"):
        finding = run_twice(CHECKS[check_id], node, h200_profile())["gpu3"]
        assert finding.verdict is PASS, finding


def test_no_power_event_at_all_tells_anyone_to_call_support() -> None:
    for check_id in ("gpu.throttle", "gpu.power_dips", "gpu.power_limit"):
        for bits in (0x8, 0x20, 0x40, 0x80, 0xE8):
            node = h200_node()
            node.set("nvml.gpus.3.power.event_reasons", bits)
            node.set("nvml.gpus.3.power.enforced_limit_w", 500.0)
            found = run_twice(CHECKS[check_id], node, h200_profile())["gpu3"]
            assert found.action.kind is not ActionKind.CONTACT_SUPPORT


def test_downtraining_is_seen_under_load_and_not_at_idle() -> None:
    """NVIDIA/NVSentinel#890: PCIe downtraining and silent throttling missed."""
    node = h200_node()
    node.set("nvml.gpus.3.pcie.generation", 2)
    assert run_check(CHECKS["gpu.pcie"], node, h200_profile())["gpu3"].verdict is PASS
    node.set("nvml.gpus.3.power.gpu_utilization_percent", 97)
    assert run_check(CHECKS["gpu.pcie"], node, h200_profile())["gpu3"].verdict is WARN
    node.set("nvml.gpus.3.pcie.width", 4)
    assert run_check(CHECKS["gpu.pcie"], node, h200_profile())["gpu3"].verdict is FAIL


def test_a_gpu_off_the_bus_fails_although_nvml_hangs() -> None:
    """NVIDIA/NVSentinel#155: off the bus without any Xid; here NVML does not even answer."""
    node = h200_node()
    node.data["nvml"]["gpus"][3]["thermal"] = {"error": "TIMEOUT"}
    assert run_check(CHECKS["gpu.lost"], node, h200_profile())["gpu3"].verdict is UNKNOWN
    node.set("files:sys/bus/pci/devices/0000:5d:00.0/config", {"hex": "ff" * 64})
    findings = run_check(CHECKS["gpu.lost"], node, h200_profile())
    assert findings.pop("gpu3").verdict is FAIL
    assert {finding.verdict for finding in findings.values()} == {PASS}


def test_a_gpu_removed_from_the_pci_bus_is_lost() -> None:
    node = h200_node()
    for kind in ("files", "links"):
        names = node.data[kind]
        for path in [path for path in names if path.startswith("sys/bus/pci/devices/0000:5d:00.0")]:
            del names[path]
    assert "gone from the PCI bus" in run_check(CHECKS["gpu.lost"], node, h200_profile())["gpu3"].summary


def test_a_tree_without_pci_devices_says_nothing_against_a_gpu() -> None:
    node = h200_node()
    node.data["files"].clear()
    node.data["links"].clear()
    assert {f.verdict for f in run_check(CHECKS["gpu.lost"], node, h200_profile()).values()} == {PASS}


def test_a_loop_of_parents_does_not_hang() -> None:
    node = h200_node()
    node.set("nvml.gpus.3.processes.pids", [7001])
    node.set("files:proc/7001/stat", "7001 (a) S 7002 0")
    node.set("files:proc/7002/stat", "7002 (b) S 7001 0")
    assert run_check(CHECKS["gpu.foreign"], node, h200_profile())["gpu3"].verdict is WARN


def _gb10() -> FakeNode:
    """One GPU as public reports show a GB10 (SIMULATED): what it refuses, reads as nought or makes up."""
    node = h200_node()
    gpu = node.data["nvml"]["gpus"][0]
    gpu["identity"] |= {"name": "NVIDIA GB10", "pci_bus_id": "000f:01:00.0"}
    refused = {
        "thermal": ("margin_c", "shutdown_c", "slowdown_c", "memory_max_c", "gpu_max_c", "shutdown_offset_c",
                    "slowdown_offset_c", "memory_offset_c", "gpu_offset_c"),
        "power": ("enforced_limit_w", "requested_limit_w", "default_limit_w", "min_limit_w", "max_limit_w"),
        "slowdowns": ("hw_brake_ns", "hw_thermal_ns"),
        "memory": ("used_b", "total_b", "ecc_enabled", "ecc_uncorrected_volatile", "ecc_corrected_volatile",
                   "ecc_uncorrected_aggregate", "remap_corrected", "remap_uncorrected", "remap_pending",
                   "remap_failure"),
    }  # fmt: skip
    for group, fields in refused.items():
        gpu[group] |= dict.fromkeys(fields, NOT_SUPPORTED)
    gpu["ecc"] = NOT_SUPPORTED
    gpu["pcie_errors"] = NOT_SUPPORTED
    gpu["pcie"] = {"generation": 1, "max_generation": 1, "width": 1, "max_width": 1, "replays": NOT_SUPPORTED}
    gpu["thermal"]["memory_temperature_c"] = 0
    gpu["power"] |= {
        "sm_clock_mhz": 2405,
        "max_sm_clock_mhz": 3003,
        "gpu_utilization_percent": 96,
        "event_reasons": 0,
    }
    node.set("files:sys/bus/pci/devices/000f:01:00.0/config", {"hex": "de10122e46051000" + "00" * 56})
    node.data["nvml"]["gpus"] = [gpu]
    node.data["nvml"]["system"]["device_count"] = 1
    return node


GPU_CHECKS = sorted(id_ for id_ in CHECKS if id_.startswith("gpu."))


@pytest.mark.parametrize("check_id", GPU_CHECKS)
def test_what_a_gb10_lacks_is_its_platform_and_no_fault(check_id: str) -> None:
    profile = profile_from_dict(
        {"platform": "gb10", "mode": "manage", "engines": {"glm": {"gpus": [0], "port": 8000}}}
    )
    findings = run_twice(CHECKS[check_id], _gb10(), profile.profile)
    assert {finding.verdict for finding in findings.values()} <= {PASS, SKIP}, findings


def test_a_gb10_in_safe_mode_is_told() -> None:
    """USB-C power that was negotiated wrongly: busy at 507 of 3003 MHz, and no event reason at all."""
    node, profile = _gb10(), profile_from_dict({"platform": "gb10"}).profile
    node.set("nvml.gpus.0.power.sm_clock_mhz", 507)
    for _ in range(3):
        found = run_check(CHECKS["gpu.clocks"], node, profile)["gpu0"]
        node.clock.now_s += 10
    assert found.verdict is WARN
