"""The process that uses NVML, through nvidia-ml-py; nvml.py starts it and kills it when a call hangs.

It imports nothing heavy, keeps nothing between calls but device handles, and answers one request at a time
with the fields of GROUP_FIELDS in natural units. A refused value travels as `{"error": "NOT_SUPPORTED"}`.
NVML API: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml as nv

from agent.sources.gpu_reading import GROUP_FIELDS, NvmlGroup
from agent.sources.nvml_child_calls import Handle, Json, ask, demand, field_values, refusal, refused
from agent.sources.nvml_child_loop import Refused, serve

#: A link that is not there answers with either of these.
NO_LINK = ("NOT_SUPPORTED", "INVALID_ARGUMENT")
#: Links asked for where the driver does not tell how many a GPU has (Hopper and Blackwell have 18).
DEFAULT_LINKS = 18
MAX_LINKS = 64

FIELD_MEMORY_TEMPERATURE = 82
FIELD_LINK_COUNT = 91
FIELD_LINK_REPLAY, FIELD_LINK_RECOVERY, FIELD_LINK_CRC = 161, 162, 163
FIELD_LINK_SPEED, FIELD_LINK_STATE = 164, 165
FIELD_TLIMITS = {
    "shutdown_offset_c": 193,
    "slowdown_offset_c": 194,
    "memory_offset_c": 195,
    "gpu_offset_c": 196,
}
FIELD_RECOVERY_ACTION = 230
#: NVML_NVLINK_STATE_*: active, and asleep to save power; 0 is inactive, 3 active with its traffic disabled.
LINK_UP = (1, 2)
#: Memory of a process that NVML does not know (NVML_VALUE_NOT_AVAILABLE; the binding makes it None).
UNKNOWN_BYTES = (None, 2**64 - 1)


def thermal(handle: Handle) -> Json:
    """Temperatures, thresholds and the signed T.Limit offsets."""
    fields = [(FIELD_MEMORY_TEMPERATURE, 0), *((field, 0) for field in FIELD_TLIMITS.values())]
    memory_c, *offsets_c = field_values(handle, fields)
    temperature_c = ask("nvmlDeviceGetTemperature", handle, nv.NVML_TEMPERATURE_GPU)
    if temperature_c == {"error": "FUNCTION_NOT_FOUND"}:  # deprecated since CUDA 13
        temperature_c = ask("nvmlDeviceGetTemperatureV", handle, nv.NVML_TEMPERATURE_GPU)
    threshold = "nvmlDeviceGetTemperatureThreshold"
    return {
        "temperature_c": temperature_c,
        "memory_temperature_c": memory_c,
        "margin_c": ask("nvmlDeviceGetMarginTemperature", handle),
        "shutdown_c": ask(threshold, handle, nv.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        "slowdown_c": ask(threshold, handle, nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        "memory_max_c": ask(threshold, handle, nv.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
        "gpu_max_c": ask(threshold, handle, nv.NVML_TEMPERATURE_THRESHOLD_GPU_MAX),
        **dict(zip(FIELD_TLIMITS, offsets_c, strict=True)),
    }


def watts(milliwatts: int) -> float:
    """NVML gives power in mW."""
    return milliwatts / 1000


def power(handle: Handle) -> Json:
    """Draw, limits, clocks and why they are held down."""
    limits_w = ask(
        "nvmlDeviceGetPowerManagementLimitConstraints", handle, convert=lambda mw: [watts(v) for v in mw]
    )
    no_limits = refused(limits_w)
    return {
        "draw_w": ask("nvmlDeviceGetPowerUsage", handle, convert=watts),
        "enforced_limit_w": ask("nvmlDeviceGetEnforcedPowerLimit", handle, convert=watts),
        "requested_limit_w": ask("nvmlDeviceGetPowerManagementLimit", handle, convert=watts),
        "default_limit_w": ask("nvmlDeviceGetPowerManagementDefaultLimit", handle, convert=watts),
        "min_limit_w": limits_w if no_limits else limits_w[0],
        "max_limit_w": limits_w if no_limits else limits_w[1],
        "persistence": ask("nvmlDeviceGetPersistenceMode", handle, convert=bool),
        "event_reasons": ask("nvmlDeviceGetCurrentClocksEventReasons", handle),
        "sm_clock_mhz": ask("nvmlDeviceGetClockInfo", handle, nv.NVML_CLOCK_SM),
        "max_sm_clock_mhz": ask("nvmlDeviceGetMaxClockInfo", handle, nv.NVML_CLOCK_SM),
        "gpu_utilization_percent": ask(
            "nvmlDeviceGetUtilizationRates", handle, convert=lambda rates: rates.gpu
        ),
    }


def memory(handle: Handle) -> Json:
    """Memory use, ECC counts, row remapping and the recovery action that the driver asks for."""
    used = ask("nvmlDeviceGetMemoryInfo", handle)
    rows = ask("nvmlDeviceGetRemappedRows", handle)
    corrected, uncorrected, pending, failure = [rows] * 4 if refused(rows) else rows
    errors = "nvmlDeviceGetTotalEccErrors"
    single, double = nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return {
        "used_b": used if refused(used) else used.used,
        "total_b": used if refused(used) else used.total,
        "ecc_enabled": ask("nvmlDeviceGetEccMode", handle, convert=lambda modes: bool(modes[0])),
        "ecc_uncorrected_volatile": ask(errors, handle, double, nv.NVML_VOLATILE_ECC),
        "ecc_corrected_volatile": ask(errors, handle, single, nv.NVML_VOLATILE_ECC),
        "ecc_uncorrected_aggregate": ask(errors, handle, double, nv.NVML_AGGREGATE_ECC),
        "remap_corrected": corrected,
        "remap_uncorrected": uncorrected,
        "remap_pending": pending if refused(pending) else bool(pending),
        "remap_failure": failure if refused(failure) else bool(failure),
        "recovery_action": field_values(handle, [(FIELD_RECOVERY_ACTION, 0)])[0],
    }


def nvlink(handle: Handle) -> Json:
    """State and speed of all links."""
    columns = link_columns(handle, FIELD_LINK_SPEED)
    if columns is None:
        return dict.fromkeys(GROUP_FIELDS[NvmlGroup.NVLINK], refusal("NOT_SUPPORTED"))
    states, speeds = columns
    return {
        "states": by_link([value if refused(value) else value in LINK_UP for value in states]),
        "speeds_mb_s": by_link([speed_of(*pair) for pair in zip(states, speeds, strict=True)]),
    }


def nvlink_errors(handle: Handle) -> Json:
    """Error counters of all links: half a millisecond or more for each, so 50 ms on a GPU of 18 links."""
    columns = link_columns(handle, FIELD_LINK_REPLAY, FIELD_LINK_RECOVERY, FIELD_LINK_CRC)
    fields = GROUP_FIELDS[NvmlGroup.NVLINK_ERRORS]
    counters = columns[1:] if columns else [[refusal("NOT_SUPPORTED")]] * len(fields)
    return {field: by_link(counter) for field, counter in zip(fields, counters, strict=True)}


def link_columns(handle: Handle, *fields: int) -> list[list[Any]] | None:
    """State and the `fields` of the links that are there, read in one call; None without any link."""
    count = field_values(handle, [(FIELD_LINK_COUNT, 0)])[0]
    links = range(DEFAULT_LINKS if refused(count) else min(count, MAX_LINKS))
    ids = (FIELD_LINK_STATE, *fields)
    answers = field_values(handle, [(field, link) for field in ids for link in links]) if links else []
    states = answers[: len(links)]
    present = [link for link in links if not refused(states[link]) or states[link]["error"] not in NO_LINK]
    starts = range(0, len(answers), len(links) or 1)
    return [[answers[start + link] for link in present] for start in starts] if present else None


def speed_of(state: Any, speed: Any) -> Any:
    """A link that is down may refuse its speed: it has none."""
    return 0 if refused(speed) and not refused(state) and state not in LINK_UP else speed


def by_link(values: list[Any]) -> Any:
    """Values by link, or the first refusal: a list with holes would be read as if links were fewer."""
    return next((value for value in values if refused(value)), values)


def fabric(handle: Handle) -> Json:
    """The GPU's registration with the NVLink fabric."""
    info_type = getattr(nv, "c_nvmlGpuFabricInfo_v2_t", None)
    version = getattr(nv, "nvmlGpuFabricInfo_v2", None)
    if info_type is None or version is None:
        return dict.fromkeys(GROUP_FIELDS[NvmlGroup.FABRIC], refusal("FUNCTION_NOT_FOUND"))
    info = info_type()
    info.version = version
    # A structure instead of a pointer to one would be a segmentation fault.
    no = ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info))
    if refused(no):
        return dict.fromkeys(GROUP_FIELDS[NvmlGroup.FABRIC], no)
    return {
        "state": info.state,
        "status": info.status,
        "health_mask": info.healthMask,
        "clique_id": info.cliqueId,
    }


def pcie(handle: Handle) -> Json:
    """The PCIe link."""
    return {
        "generation": ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "max_generation": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "width": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "max_width": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "replays": ask("nvmlDeviceGetPcieReplayCounter", handle),
    }


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


GROUPS: dict[str, Callable[[Handle], Json]] = {
    group.__name__: group
    for group in (thermal, power, memory, nvlink, nvlink_errors, fabric, pcie, processes)
}


def init(library: str | None) -> Json:
    """Load the library and start NVML."""
    if library is not None:
        try:
            nv.nvmlLib = ctypes.CDLL(library)
        except OSError:
            raise Refused("LIBRARY_NOT_FOUND") from None
    demand("nvmlInit")
    return {}


def system() -> Json:
    """Versions and device count."""
    return {
        "driver_version": demand("nvmlSystemGetDriverVersion"),
        "nvml_version": demand("nvmlSystemGetNVMLVersion"),
        "cuda_version": demand("nvmlSystemGetCudaDriverVersion"),
        "device_count": demand("nvmlDeviceGetCount"),
    }


def optional(function: str, handle: Handle) -> Any:
    """A part of the identity that not every board has."""
    value = ask(function, handle)
    return None if refused(value) else value


_handles: dict[str, Handle] = {}


def identity(index: int) -> Json:
    """Who the GPU with this NVML index is."""
    handle = demand("nvmlDeviceGetHandleByIndex", index)
    uuid = demand("nvmlDeviceGetUUID", handle)
    _handles[uuid] = handle
    return {
        "uuid": uuid,
        "pci_bus_id": demand("nvmlDeviceGetPciInfo_v3", handle).busId,
        "name": optional("nvmlDeviceGetName", handle),
        "serial": optional("nvmlDeviceGetSerial", handle),
        "vbios": optional("nvmlDeviceGetVbiosVersion", handle),
        "minor": optional("nvmlDeviceGetMinorNumber", handle),
    }


def read(uuid: str, pci_bus_id: str, group: str) -> Json:
    """One group of values of one GPU.

    A new process finds the GPU by its PCI address: a search by UUID touches every GPU before it, also a hung
    one.
    """
    handle = _handles.get(uuid)
    if handle is None:
        handle = demand("nvmlDeviceGetHandleByPciBusId", pci_bus_id)
        if demand("nvmlDeviceGetUUID", handle) != uuid:
            raise Refused("NOT_FOUND")
        _handles[uuid] = handle
    return GROUPS[group](handle)


if __name__ == "__main__":
    serve({"init": init, "system": system, "identity": identity, "read": read})
