"""What the NVML child reads of one GPU besides its links, group by group, in natural units.

NVML API: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml as nv

from agent.sources.nvml_child_calls import Handle, Json, ask, field_values, lasting, refusal, refused

FIELD_MEMORY_TEMPERATURE = 82
FIELD_TLIMITS = {
    "shutdown_offset_c": 193,
    "slowdown_offset_c": 194,
    "memory_offset_c": 195,
    "gpu_offset_c": 196,
}
FIELD_ECC_CURRENT, FIELD_RECOVERY_ACTION = 1, 230
#: NVML_FI_DEV_POWER_REQUESTED_LIMIT in mW.
FIELD_REQUESTED_LIMIT = 192
#: NVML_FI_DEV_CLOCKS_EVENT_REASON_* in lifetime nanoseconds.
FIELDS_SLOWDOWNS = {
    "sw_power_cap_ns": 74,
    "sw_thermal_ns": 269,
    "hw_thermal_ns": 270,
    "hw_brake_ns": 271,
}
#: NVML_FI_DEV_PCIE_*.
FIELD_PCIE_ERRORS = {
    "l0_to_recovery": 169,
    "correctable": 173,
    "naks_received": 174,
    "receiver_errors": 175,
    "bad_tlp": 176,
    "naks_sent": 177,
    "bad_dllp": 178,
    "non_fatal": 179,
    "fatal": 180,
}
#: Memory of a process that NVML does not know (NVML_VALUE_NOT_AVAILABLE; the binding makes it None).
UNKNOWN_BYTES = (None, 2**64 - 1)


def thermal(handle: Handle) -> Json:
    """Temperatures, thresholds and the signed T.Limit offsets."""
    temperature_c = ask("nvmlDeviceGetTemperature", handle, nv.NVML_TEMPERATURE_GPU)
    if temperature_c == {"error": "FUNCTION_NOT_FOUND"}:  # deprecated since CUDA 13
        temperature_c = ask("nvmlDeviceGetTemperatureV", handle, nv.NVML_TEMPERATURE_GPU)
    return {
        "temperature_c": temperature_c,
        "memory_temperature_c": field_values(handle, [(FIELD_MEMORY_TEMPERATURE, 0)])[0],
        "margin_c": ask("nvmlDeviceGetMarginTemperature", handle),
        **{name: lasting(handle, threshold) for name, threshold in THRESHOLDS.items()},
        **dict(zip(FIELD_TLIMITS, lasting(handle, tlimits), strict=True)),
    }


def _threshold(kind: int) -> Callable[[Handle], Any]:
    return lambda handle: ask("nvmlDeviceGetTemperatureThreshold", handle, kind)


THRESHOLDS = {
    "shutdown_c": _threshold(nv.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
    "slowdown_c": _threshold(nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    "memory_max_c": _threshold(nv.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
    "gpu_max_c": _threshold(nv.NVML_TEMPERATURE_THRESHOLD_GPU_MAX),
}


def tlimits(handle: Handle) -> list[Any]:
    """The signed offsets to the T.Limit."""
    return field_values(handle, [(field, 0) for field in FIELD_TLIMITS.values()])


def max_sm_clock(handle: Handle) -> Any:
    """The highest SM clock: 1.5 ms on H200."""
    return ask("nvmlDeviceGetMaxClockInfo", handle, nv.NVML_CLOCK_SM)


def watts(milliwatts: int) -> float:
    """NVML gives power in mW."""
    return milliwatts / 1000


def power(handle: Handle) -> Json:
    """Draw, limits, clocks and why they are held down."""
    limits_w = ask(
        "nvmlDeviceGetPowerManagementLimitConstraints", handle, convert=lambda mw: [watts(v) for v in mw]
    )
    no_limits = refused(limits_w)
    requested_mw = field_values(handle, [(FIELD_REQUESTED_LIMIT, 0)])[0]
    if refused(requested_mw):  # a driver without the field; its function takes a third of a millisecond
        requested_mw = ask("nvmlDeviceGetPowerManagementLimit", handle)
    return {
        "draw_w": ask("nvmlDeviceGetPowerUsage", handle, convert=watts),
        "enforced_limit_w": ask("nvmlDeviceGetEnforcedPowerLimit", handle, convert=watts),
        "requested_limit_w": requested_mw if refused(requested_mw) else watts(requested_mw),
        "default_limit_w": ask("nvmlDeviceGetPowerManagementDefaultLimit", handle, convert=watts),
        "min_limit_w": limits_w if no_limits else limits_w[0],
        "max_limit_w": limits_w if no_limits else limits_w[1],
        "persistence": ask("nvmlDeviceGetPersistenceMode", handle, convert=bool),
        "event_reasons": ask("nvmlDeviceGetCurrentClocksEventReasons", handle),
        "sm_clock_mhz": ask("nvmlDeviceGetClockInfo", handle, nv.NVML_CLOCK_SM),
        "max_sm_clock_mhz": lasting(handle, max_sm_clock),
        "gpu_utilization_percent": ask(
            "nvmlDeviceGetUtilizationRates", handle, convert=lambda rates: rates.gpu
        ),
    }


def slowdowns(handle: Handle) -> Json:
    """For how long in all each reason has held the clocks down: two milliseconds on H200."""
    values = field_values(handle, [(field, 0) for field in FIELDS_SLOWDOWNS.values()])
    return dict(zip(FIELDS_SLOWDOWNS, values, strict=True))


def memory(handle: Handle) -> Json:
    """Memory use, ECC counts, row remapping and the recovery action that the driver asks for."""
    used = ask("nvmlDeviceGetMemoryInfo", handle)
    rows = ask("nvmlDeviceGetRemappedRows", handle)
    corrected, uncorrected, pending, failure = [rows] * 4 if refused(rows) else rows
    errors = "nvmlDeviceGetTotalEccErrors"
    ecc_now, recovery = field_values(handle, [(FIELD_ECC_CURRENT, 0), (FIELD_RECOVERY_ACTION, 0)])
    if refused(ecc_now):
        ecc_now = ask("nvmlDeviceGetEccMode", handle, convert=lambda modes: modes[0])
    single, double = nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return {
        "used_b": used if refused(used) else used.used,
        "total_b": used if refused(used) else used.total,
        "ecc_enabled": ecc_now if refused(ecc_now) else bool(ecc_now),
        "ecc_uncorrected_volatile": ask(errors, handle, double, nv.NVML_VOLATILE_ECC),
        "ecc_corrected_volatile": ask(errors, handle, single, nv.NVML_VOLATILE_ECC),
        "ecc_uncorrected_aggregate": ask(errors, handle, double, nv.NVML_AGGREGATE_ECC),
        "remap_corrected": corrected,
        "remap_uncorrected": uncorrected,
        "remap_pending": pending if refused(pending) else bool(pending),
        "remap_failure": failure if refused(failure) else bool(failure),
        "recovery_action": recovery,
    }


def ecc(handle: Handle) -> Json:
    """ECC counts by kind, repairs that wait for a reset, the clocks that the GPU is set to, and MIG."""
    count = "nvmlDeviceGetMemoryErrorCounter"
    volatile = nv.NVML_VOLATILE_ECC
    corrected, uncorrected = nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    dram, sram = nv.NVML_MEMORY_LOCATION_DRAM, nv.NVML_MEMORY_LOCATION_SRAM
    repairs = ask("nvmlDeviceGetRepairStatus", handle, convert=lambda bits: [bool(bit) for bit in bits])
    channel, tpc = [repairs] * 2 if refused(repairs) else repairs
    return {
        "dram_corrected_volatile": ask(count, handle, corrected, volatile, dram),
        "dram_uncorrected_volatile": ask(count, handle, uncorrected, volatile, dram),
        "sram_corrected_volatile": ask(count, handle, corrected, volatile, sram),
        "sram_uncorrected_volatile": ask(count, handle, uncorrected, volatile, sram),
        **sram_status(handle),
        "remap_banks_none": ask("nvmlDeviceGetRowRemapperHistogram", handle, convert=lambda rows: rows.none),
        "channel_repair_pending": channel,
        "tpc_repair_pending": tpc,
        "max_sm_clock_mhz": lasting(handle, max_sm_clock),
        "app_sm_clock_mhz": application_clock(handle),
        # Half a millisecond on H200.
        "mig_enabled": ask("nvmlDeviceGetMigMode", handle, convert=lambda modes: bool(modes[0])),
    }


def sram_status(handle: Handle) -> Json:
    """Uncorrected SRAM errors over the board's life, and whether they are more than it may have."""
    fields = ("sram_uncorrected_aggregate", "sram_threshold_exceeded")
    status_type = getattr(nv, "c_nvmlEccSramErrorStatus_v1_t", None)
    version = getattr(nv, "nvmlEccSramErrorStatus_v1", None)
    if status_type is None or version is None:
        return dict.fromkeys(fields, refusal("FUNCTION_NOT_FOUND"))
    status = status_type()
    status.version = version
    # A structure instead of a pointer to one would be a segmentation fault.
    no = ask("nvmlDeviceGetSramEccErrorStatus", handle, ctypes.byref(status))
    if refused(no):
        return dict.fromkeys(fields, no)
    total = status.aggregateUncParity + status.aggregateUncSecDed
    return dict(zip(fields, (total, bool(status.bThresholdExceeded)), strict=True))


def application_clock(handle: Handle) -> Any:
    """The SM clock that applications are set to run at."""
    clock_mhz = ask("nvmlDeviceGetApplicationsClock", handle, nv.NVML_CLOCK_SM)
    if clock_mhz == {"error": "FUNCTION_NOT_FOUND"}:  # deprecated; CUDA 14 is to leave it out
        return ask("nvmlDeviceGetClock", handle, nv.NVML_CLOCK_SM, nv.NVML_CLOCK_ID_APP_CLOCK_TARGET)
    return clock_mhz


def pcie(handle: Handle) -> Json:
    """The PCIe link."""
    return {
        "generation": ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "max_generation": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "width": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "max_width": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "replays": ask("nvmlDeviceGetPcieReplayCounter", handle),
    }


def pcie_errors(handle: Handle) -> Json:
    """Errors of the PCIe link as the GPU counts them."""
    return named_fields(handle, FIELD_PCIE_ERRORS)


def named_fields(handle: Handle, fields: dict[str, int]) -> Json:
    """Field values by name, read in one call."""
    return dict(zip(fields, field_values(handle, [(field, 0) for field in fields.values()]), strict=True))


def processes(handle: Handle) -> Json:
    """Compute processes; their memory is Not Supported when NVML does not know it of one of them."""
    found = ask("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    if refused(found):
        return {"pids": found, "used_mib": found}
    used_b = [process.usedGpuMemory for process in found]
    known = all(value not in UNKNOWN_BYTES for value in used_b)
    return {
        "pids": [process.pid for process in found],
        "used_mib": [value / 2**20 for value in used_b] if known else refusal("NOT_SUPPORTED"),
    }
