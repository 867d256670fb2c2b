"""A healthy 8-GPU H200 RoCE node as data for FakeNode, and the profile that goes with it; SIMULATED values.

The NVML values are those of an idle H200 (driver 580.159.04); identities and NICs are made up.
"""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

from fake_h200_bmc import bmc_profile
from fake_h200_engines import LAUNCH, engine_files, engine_pids, launches
from fake_h200_fabric import fabric_files, hopper_ber, pci_links, peers, units
from fake_h200_host import PACKAGES, engine_peers, host_data, host_files, host_links, host_profile
from fake_h200_net import NIC_BUSES, fabric, interface, nic_files
from fake_sources import FakeNode

from agent.node_profile import NodeProfile

BUSES = ("05", "17", "3a", "5d", "85", "97", "ba", "dd")
LINKS = 18


def uuid_of(slot: int) -> str:
    return f"GPU-0000000{slot}-aaaa-bbbb-cccc-0123456789a{slot}"


def _gpu(slot: int) -> dict[str, Any]:
    return {
        "identity": {
            "index": slot,
            "uuid": uuid_of(slot),
            "pci_bus_id": f"0000:{BUSES[slot]}:00.0",
            "name": "NVIDIA H200",
            "serial": f"160069893557{slot}",
            "vbios": "96.00.A5.00.1A",
            "minor": slot,
        },
        "thermal": {
            "temperature_c": 37,
            "memory_temperature_c": 41,
            "margin_c": 49,
            "shutdown_c": 95,
            "slowdown_c": 89,
            "memory_max_c": 95,
            "gpu_max_c": 87,
            "shutdown_offset_c": -8,
            "slowdown_offset_c": -2,
            "memory_offset_c": 0,
            "gpu_offset_c": 0,
        },
        "power": {
            "draw_w": 77.6,
            "enforced_limit_w": 700.0,
            "requested_limit_w": 700.0,
            "default_limit_w": 700.0,
            "min_limit_w": 200.0,
            "max_limit_w": 700.0,
            "persistence": True,
            "event_reasons": 1,
            "sm_clock_mhz": 345,
            "max_sm_clock_mhz": 1980,
            "gpu_utilization_percent": 0,
        },
        "slowdowns": {
            "sw_power_cap_ns": 12_000_000_000,
            "sw_thermal_ns": 0,
            "hw_thermal_ns": 0,
            "hw_brake_ns": 0,
        },
        "memory": {
            "used_b": 644939776,
            "total_b": 150754820096,
            "ecc_enabled": True,
            "ecc_uncorrected_volatile": 0,
            "ecc_corrected_volatile": 0,
            "ecc_uncorrected_aggregate": 2,
            "remap_corrected": 1,
            "remap_uncorrected": 2,
            "remap_pending": False,
            "remap_failure": False,
            "recovery_action": 0,
        },
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
            "max_sm_clock_mhz": 1980,
            "app_sm_clock_mhz": 1980,
            "mig_enabled": False,
        },
        "nvlink": {
            "states": [True] * LINKS,
            "speeds_mb_s": [26562] * LINKS,
        },
        "nvlink_errors": {
            "replay_errors": [3] * LINKS,
            "recovery_errors": [1] * LINKS,
            "crc_errors": [7] * LINKS,
        },
        "nvlink_ber": hopper_ber(),
        "fabric": {"state": 3, "status": 0, "health_mask": 0, "clique_id": 0},
        "pcie": {"generation": 5, "max_generation": 5, "width": 16, "max_width": 16, "replays": 1},
        # As read from an idle H200 some minutes after its driver was loaded.
        "pcie_errors": {
            "l0_to_recovery": 1401,
            "correctable": 0,
            "naks_received": 0,
            "receiver_errors": 33,
            "bad_tlp": 37,
            "naks_sent": 31,
            "bad_dllp": 2,
            "non_fatal": 0,
            "fatal": 0,
        },
        "peers": peers(slot),
        "processes": {"pids": [5000 + slot], "used_mib": [512.0]},
    }


def _pci_files(device: str) -> dict[str, Any]:
    """What a GPU's PCI device shows besides vendor and class: configuration space and AER counters."""
    return {
        f"{device}/config": {"hex": "de10352346051000" + "00" * 56},
        f"{device}/aer_dev_correctable": "RxErr 33\nBadTLP 37\nBadDLLP 2\nTOTAL_ERR_COR 72",
        f"{device}/aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
        f"{device}/aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 0",
    }


def _serving(name: str) -> dict[str, Any]:
    return {
        "phase": "warm",
        "health": {"ok": True, "age_s": 0.5},
        "canary": {"verdict": "ok", "age_s": 3.0},
        "pids": engine_pids(name),
        "requests_running": 3.0,
        "kv_cache_used_ratio": 0.4,
        "prefix_queries_total": 1e6,
        "prefix_hits_total": 9e5,
        "preemptions_total": 0.0,
    }


@cache
def _frozen() -> bytes:
    """The node's data once, to be thawed for each test: ten times as fast as making or copying it."""
    return pickle.dumps(_unshared(_make_data()))


def _unshared(value: Any) -> Any:
    """Equal parts as parts of their own, so that a change in one place is one in that place alone."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def h200_data() -> dict[str, Any]:
    """The node as a dict in the shape of a node folder, the caller's own."""
    data: dict[str, Any] = pickle.loads(_frozen())
    return data


def _make_data() -> dict[str, Any]:
    files: dict[str, Any] = fabric_files() | host_files() | engine_files()
    for slot in range(8):
        files |= nic_files(slot)
        files[f"sys/bus/pci/devices/0000:{BUSES[slot]}:00.0/vendor"] = "0x10de"
        files[f"sys/bus/pci/devices/0000:{BUSES[slot]}:00.0/class"] = "0x030200"
        files |= _pci_files(f"sys/bus/pci/devices/0000:{BUSES[slot]}:00.0")
        files[f"sys/bus/pci/devices/0000:{BUSES[slot]}:00.0/numa_node"] = str(slot // 4)
        files[f"sys/bus/pci/devices/0000:{NIC_BUSES[slot]}:00.0/vendor"] = "0x15b3"
        files[f"sys/bus/pci/devices/0000:{NIC_BUSES[slot]}:00.0/class"] = "0x020000"
    host = host_data()
    host["host"]["units"] = units() | host["host"].get("units", {})
    versions = {"driver_version": "580.159.04", "nvml_version": "13.580.159.04", "cuda_version": 13000}
    return {
        "nvml": {"system": {**versions, "device_count": 8}, "gpus": [_gpu(slot) for slot in range(8)]},
        "net": {f"eth{slot}": interface() for slot in range(8)},
        "files": files,
        "links": {
            f"sys/class/infiniband/mlx5_{slot}/device": f"../../../0000:{NIC_BUSES[slot]}:00.0"
            for slot in range(8)
        }
        | pci_links(BUSES)
        | host_links(),
        "kmsg": ["6,339,5140900,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04"],
        "engines": {name: _serving(name) for name in ("glm", "kimi")},
        "launches": launches(),
        **host,
    }


def h200_node() -> FakeNode:
    """The healthy node, ready to be changed."""
    return FakeNode(h200_data(), shared=True)


def h200_profile_data() -> dict[str, Any]:
    """The profile that the healthy node fulfils, as a dict to change before validation."""
    pins = {
        slot: {
            "uuid": uuid_of(slot),
            "serial": f"160069893557{slot}",
            "pci_bus_id": f"0000:{BUSES[slot]}:00.0",
        }
        for slot in range(8)
    }
    ports = [
        {
            "device": f"mlx5_{slot}",
            "netdev": f"eth{slot}",
            "rate_gbps": 400,
            "mtu_bytes": 9000,
            "pci_bus_id": f"0000:{NIC_BUSES[slot]}:00.0",
            "gpu": slot,
            "path_to_gpu": "PIX",
            "numa_node": slot // 4,
        }
        for slot in range(8)
    ]
    return {
        "node": "sim-h200",
        "platform": "h200",
        "mode": "manage",
        "driver_version": "580.159.04",
        "gpus": {
            "count": 8,
            "model": "NVIDIA H200",
            "pins": pins,
            "power_limit_w": 700.0,
            "vbios": ["96.00.A5.00.1A"],
            "packages": PACKAGES,
        },
        "nvlink": {"links_per_gpu": LINKS, "speed_mb_s": 26562, "fabric": True, "nvswitches": 4},
        "fabric": fabric(ports),
        "host": host_profile(),
        "bmc": bmc_profile(),
        "engines": {
            "glm": {"gpus": [0, 1, 2, 3], "port": 8000, "peers": engine_peers("glm"), "launch": dict(LAUNCH)},
            "kimi": {"gpus": [4, 5, 6, 7], "port": 8001, "peers": engine_peers("kimi")},
        },
    }


def merged(base: dict[Any, Any], changes: dict[Any, Any]) -> dict[Any, Any]:
    """`base` with `changes` laid over it, map by map; None removes a key."""
    result = dict(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def h200_profile(changes: dict[str, Any] | None = None) -> NodeProfile:
    """The profile of the healthy node, with changes."""
    if not changes:
        return _plain_profile()
    data = h200_profile_data()
    for name, engine in (changes.get("engines") or {}).items():
        # Who describes a launch describes all of it but what is said here of every engine.
        if isinstance(engine, dict) and "launch" in engine and "environment" not in (engine["launch"] or {}):
            for key in LAUNCH:
                data["engines"].get(name, {}).get("launch", {}).pop(key, None)
    return NodeProfile.model_validate(merged(data, changes))


@cache
def _plain_profile() -> NodeProfile:
    return NodeProfile.model_validate(h200_profile_data())
