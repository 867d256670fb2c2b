"""NVML readings of filled-in GPUs. Hopper's are those read from real H200s, less what H200 alone has."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

NODES = Path(__file__).parents[1]
NOT_SUPPORTED = {"error": "NOT_SUPPORTED"}
LINKS = 18
#: Lifetime numbers that a healthy GPU has: never zero, and no two GPUs alike.
_WARMER = (0, 2, 1, 3, 1, 0, 2, 1)


def uuid(node: int, slot: int) -> str:
    """A UUID that is nobody's."""
    number = 0xB1C0FFEE + node * 0x10000000 // 16 + slot * 0x01010101
    return (
        f"GPU-{number % 2**32:08x}-4e2d-5b7a-9c3f-{0x0D15EA5E0000 + node * 0x100000000 + slot * 0x1111:012x}"
    )


def real_h200() -> dict[str, Any]:
    """One idle H200 as read, with the NVLink and fabric values of another."""
    one = json.loads((NODES / "h200-x1-capture/nvml.json").read_text())["gpus"][0]
    two = json.loads((NODES / "h200-x2-capture/nvml.json").read_text())["gpus"][0]
    gpu: dict[str, Any] = copy.deepcopy(one)
    for group in ("nvlink", "nvlink_errors", "fabric"):
        gpu[group] = copy.deepcopy(two[group])
    return gpu


def later_groups(slot: int, peers: list[int], sm_clock_mhz: int) -> dict[str, Any]:
    """The groups that the real captures lack: errors by place, PCIe errors, peers (`peers`)."""
    return {
        "ecc": {
            "dram_corrected_volatile": 0,
            "dram_uncorrected_volatile": 0,
            "sram_corrected_volatile": 0,
            "sram_uncorrected_volatile": 0,
            "sram_uncorrected_aggregate": 0,
            "sram_threshold_exceeded": False,
            "remap_banks_none": 0,
            "channel_repair_pending": False,
            "tpc_repair_pending": False,
            "max_sm_clock_mhz": sm_clock_mhz,
            "app_sm_clock_mhz": sm_clock_mhz,
            "mig_enabled": False,
        },
        # As a healthy H200 showed them after its start: judged are deltas, never these.
        "pcie_errors": {
            "l0_to_recovery": 493 + 7 * slot,
            "correctable": 0,
            "naks_received": 0,
            "receiver_errors": 9,
            "bad_tlp": 9,
            "naks_sent": 9,
            "bad_dllp": 0,
            "non_fatal": 0,
            "fatal": 0,
        },
        "peers": {"p2p_nvlink": [0] * len(peers), "p2p_read": [0] * len(peers), "topology": peers},
    }


def event_times() -> dict[str, int]:
    """Lifetime nanoseconds of the reasons that lower clocks."""
    return {
        "sw_power_cap_ns": 812_400_000_000,
        "sw_thermal_ns": 0,
        "hw_thermal_ns": 0,
        "hw_brake_ns": 0,
    }


def topology(slot: int, numa_of: list[int]) -> list[int]:
    """NVML's common ancestor by GPU: 40 = same NUMA node, 50 = across sockets, its own place 0."""
    row = [40 if numa == numa_of[slot] else 50 for numa in numa_of]
    row[slot] = 0
    return row


def no_ber() -> dict[str, Any]:
    """Hopper has no bit-error fields."""
    return {
        name: dict(NOT_SUPPORTED)
        for name in (
            "malformed_packets", "buffer_overruns", "receive_errors", "remote_errors", "general_errors",
            "integrity_errors", "transmit_discards", "recoveries", "failed_recoveries", "effective_errors",
            "symbol_errors", "effective_ber", "symbol_ber",
        )
    }  # fmt: skip


def blackwell_ber(slot: int) -> dict[str, Any]:
    """A healthy NVLink 5: corrected symbols, no effective errors (floors as DCGM uses them)."""
    counts = (
        "malformed_packets", "buffer_overruns", "receive_errors", "remote_errors", "general_errors",
        "integrity_errors", "transmit_discards", "recoveries", "failed_recoveries", "effective_errors",
    )  # fmt: skip
    return {
        **{name: [0] * LINKS for name in counts},
        "symbol_errors": [slot % 2] + [0] * (LINKS - 1),
        "effective_ber": [1.5e-254] * LINKS,
        "symbol_ber": [1.5e-254] * LINKS,
    }


def warmed(gpu: dict[str, Any], slot: int) -> dict[str, Any]:
    """Neighbours are never equal: some degrees and watts more, and as much less margin."""
    warmer = _WARMER[slot % len(_WARMER)]
    gpu["thermal"]["temperature_c"] += warmer
    gpu["thermal"]["memory_temperature_c"] += warmer
    gpu["thermal"]["margin_c"] -= warmer
    gpu["power"]["draw_w"] = round(gpu["power"]["draw_w"] + 0.8 * warmer, 3)
    return gpu


def hopper(
    slot: int, identity: dict[str, Any], numa_of: list[int], *, name: str, total_mib: int, limit_w: float
) -> dict[str, Any]:
    """A Hopper GPU: what was read from H200, with the name, memory and power limit of another part."""
    gpu = warmed(real_h200(), slot)
    sm_clock_mhz = gpu["power"]["max_sm_clock_mhz"]
    gpu["identity"] = {**gpu["identity"], **identity, "name": name}
    gpu["power"] |= {
        **dict.fromkeys(("enforced_limit_w", "requested_limit_w", "default_limit_w", "max_limit_w"), limit_w),
    }
    gpu["slowdowns"] = event_times()
    gpu["memory"]["total_b"] = total_mib * 2**20
    gpu["nvlink_ber"] = no_ber()
    gpu.pop("call_us", None)
    return gpu | later_groups(slot, topology(slot, numa_of), sm_clock_mhz)


def blackwell(slot: int, identity: dict[str, Any], numa_of: list[int], domain: list[int]) -> dict[str, Any]:
    """A B300: name, VBIOS, memory and limit as public inventories show them; the rest is filled in."""
    gpu = warmed(real_h200(), slot)
    gpu["identity"] = {
        **gpu["identity"],
        **identity,
        "name": "NVIDIA B300 SXM6 AC",
        "vbios": "97.10.52.00.17",
    }
    gpu["thermal"] |= {"slowdown_offset_c": -3}
    gpu["power"] |= {
        "draw_w": round(186.0 + 1.3 * slot, 1),
        "enforced_limit_w": 1100.0,
        "requested_limit_w": 1100.0,
        "default_limit_w": 1100.0,
        "min_limit_w": 200.0,
        "max_limit_w": 1100.0,
        "sm_clock_mhz": 345,
        "max_sm_clock_mhz": 2032,
    }
    gpu["slowdowns"] = event_times()
    gpu["memory"]["total_b"] = 275_040 * 2**20
    gpu["nvlink"] = {"states": [True] * LINKS, "speeds_mb_s": [53125] * LINKS}
    gpu["nvlink_errors"] = {
        name: dict(NOT_SUPPORTED) for name in ("replay_errors", "recovery_errors", "crc_errors")
    }
    gpu["nvlink_ber"] = blackwell_ber(slot)
    gpu["pcie"] = {"generation": 6, "max_generation": 6, "width": 16, "max_width": 16, "replays": slot % 2}
    gpu.pop("call_us", None)
    gpu |= later_groups(slot, topology(slot, numa_of), 2032)
    # 5 = not supported: no NVLink between two baseboards.
    gpu["peers"]["p2p_nvlink"] = [0 if other in domain else 5 for other in range(len(numa_of))]
    return gpu


def gb10(identity: dict[str, Any]) -> dict[str, Any]:
    """A GB10: what NVML answers Not Supported there, and its placeholders."""
    refused = dict(NOT_SUPPORTED)
    gpu = warmed(real_h200(), 0)
    gpu["identity"] = {**gpu["identity"], **identity, "name": "NVIDIA GB10", "vbios": "9A.0B.18.00.00"}
    gpu["thermal"] = {
        "temperature_c": 41,
        "memory_temperature_c": 0,
        "margin_c": 49,
        "shutdown_c": 96,
        "slowdown_c": 93,
        "memory_max_c": refused,
        "gpu_max_c": refused,
        "shutdown_offset_c": -5,
        "slowdown_offset_c": -2,
        "memory_offset_c": refused,
        "gpu_offset_c": 0,
    }
    gpu["power"] = {
        "draw_w": 11.2,
        **dict.fromkeys(
            ("enforced_limit_w", "requested_limit_w", "default_limit_w", "min_limit_w", "max_limit_w"),
            refused,
        ),
        "persistence": True,
        "event_reasons": 1,
        "sm_clock_mhz": 208,
        "max_sm_clock_mhz": 3003,
        "gpu_utilization_percent": 0,
    }
    gpu["slowdowns"] = event_times()
    gpu["memory"] = {
        **dict.fromkeys(
            (
                "used_b", "total_b", "ecc_enabled", "ecc_uncorrected_volatile", "ecc_corrected_volatile",
                "ecc_uncorrected_aggregate", "remap_corrected", "remap_uncorrected", "remap_pending",
                "remap_failure",
            ),
            refused,
        ),
        "recovery_action": 0,
    }  # fmt: skip
    for group in ("nvlink", "nvlink_errors", "fabric"):
        gpu[group] = dict.fromkeys(gpu[group], refused)
    gpu["nvlink_ber"] = no_ber()
    gpu["pcie"] = {"generation": 1, "max_generation": 1, "width": 1, "max_width": 1, "replays": 0}
    gpu["pcie_errors"] = dict.fromkeys(later_groups(0, [0], 3003)["pcie_errors"], refused)
    gpu["ecc"] = {**dict.fromkeys(later_groups(0, [0], 3003)["ecc"], refused), "max_sm_clock_mhz": 3003}
    gpu["peers"] = {"p2p_nvlink": [0], "p2p_read": [0], "topology": [0]}
    gpu["processes"] = {"pids": [], "used_mib": []}
    gpu.pop("call_us", None)
    return gpu
