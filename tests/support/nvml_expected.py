"""What NvmlProcess reads from the default node of nvml_lib.py, an HGX H200."""

from __future__ import annotations

from agent.sources.gpu_reading import GROUP_FIELDS, NvmlGroup, NvmlRefusal

H200_VALUES: dict[NvmlGroup, dict[str, object]] = {
    NvmlGroup.THERMAL: {
        "temperature_c": 38,
        "memory_temperature_c": 38,
        "margin_c": 50,
        "shutdown_c": 95,
        "slowdown_c": 89,
        "memory_max_c": 95,
        "gpu_max_c": 87,
        "shutdown_offset_c": -8,
        "slowdown_offset_c": -2,
        "memory_offset_c": 0,
        "gpu_offset_c": 0,
    },
    NvmlGroup.POWER: {
        "draw_w": 77.624,
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
    NvmlGroup.SLOWDOWNS: {
        "sw_power_cap_ns": 812400000000,
        "sw_thermal_ns": 0,
        "hw_thermal_ns": 0,
        "hw_brake_ns": 0,
    },
    NvmlGroup.MEMORY: {
        "used_b": 644939776,
        "total_b": 150754820096,
        "ecc_enabled": True,
        "ecc_uncorrected_volatile": 0,
        "ecc_corrected_volatile": 0,
        "ecc_uncorrected_aggregate": 0,
        "remap_corrected": 0,
        "remap_uncorrected": 0,
        "remap_pending": False,
        "remap_failure": False,
        "recovery_action": 0,
    },
    NvmlGroup.ECC: {
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
    NvmlGroup.NVLINK: {
        "states": [True] * 18,
        "speeds_mb_s": [26562] * 18,
    },
    NvmlGroup.NVLINK_ERRORS: {
        "replay_errors": [0] * 18,
        "recovery_errors": [0] * 18,
        "crc_errors": [0] * 18,
    },
    NvmlGroup.FABRIC: {"state": 3, "status": 0, "health_mask": 0, "clique_id": 0},
    NvmlGroup.PCIE: {"generation": 5, "max_generation": 5, "width": 16, "max_width": 16, "replays": 1},
    NvmlGroup.PCIE_ERRORS: {
        "l0_to_recovery": 493,
        "correctable": 0,
        "naks_received": 0,
        "receiver_errors": 9,
        "bad_tlp": 9,
        "naks_sent": 9,
        "bad_dllp": 0,
        "non_fatal": 0,
        "fatal": 0,
    },
    # Hopper has none of these.
    NvmlGroup.NVLINK_BER: dict.fromkeys(GROUP_FIELDS[NvmlGroup.NVLINK_BER], NvmlRefusal("NOT_SUPPORTED")),
    NvmlGroup.PROCESSES: {"pids": [], "used_mib": []},
}


def h200_peers(number: int) -> dict[str, object]:
    """NVLink to all; PCIe bridges shared by the four GPUs of a socket."""
    reach = {peer: 0 if peer == number else 30 if peer // 4 == number // 4 else 50 for peer in range(8)}
    return {"p2p_nvlink": [0] * 8, "p2p_read": [0] * 8, "topology": list(reach.values())}
