"""Typed GPU readings as they travel from the NVML child, a capture or a scenario to the checks.

A group is read in one go. Field values are in natural units (the child converts mW to W). A value that
NVML refused
is an `NvmlRefusal` and raises the right SourceError when a check asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.errors import DeviceLost, NotSupported, ParseError, SourceError, SourceTimeout, SourceUnavailable


class NvmlGroup(StrEnum):
    """Values read together; the fields of each are in GROUP_FIELDS."""

    THERMAL = "thermal"
    POWER = "power"
    SLOWDOWNS = "slowdowns"
    MEMORY = "memory"
    ECC = "ecc"
    NVLINK = "nvlink"
    NVLINK_ERRORS = "nvlink_errors"
    NVLINK_BER = "nvlink_ber"
    FABRIC = "fabric"
    PCIE = "pcie"
    PCIE_ERRORS = "pcie_errors"
    PROCESSES = "processes"
    PEERS = "peers"


#: Field -> what it is and where NVML has it. The child fills exactly these.
GROUP_FIELDS: dict[NvmlGroup, dict[str, str]] = {
    NvmlGroup.THERMAL: {
        "temperature_c": "int, nvmlDeviceGetTemperature(GPU)",
        "memory_temperature_c": "int, field 82 NVML_FI_DEV_MEMORY_TEMP",
        "margin_c": "int, nvmlDeviceGetMarginTemperature: degrees to the T.Limit",
        "shutdown_c": "int, nvmlDeviceGetTemperatureThreshold(SHUTDOWN)",
        "slowdown_c": "int, nvmlDeviceGetTemperatureThreshold(SLOWDOWN)",
        "memory_max_c": "int, nvmlDeviceGetTemperatureThreshold(MEM_MAX)",
        "gpu_max_c": "int, nvmlDeviceGetTemperatureThreshold(GPU_MAX)",
        "shutdown_offset_c": "int, signed field 193 TEMPERATURE_SHUTDOWN_TLIMIT",
        "slowdown_offset_c": "int, signed field 194 TEMPERATURE_SLOWDOWN_TLIMIT",
        "memory_offset_c": "int, signed field 195 TEMPERATURE_MEM_MAX_TLIMIT",
        "gpu_offset_c": "int, signed field 196 TEMPERATURE_GPU_MAX_TLIMIT",
    },
    NvmlGroup.POWER: {
        "draw_w": "float, nvmlDeviceGetPowerUsage",
        "enforced_limit_w": "float, nvmlDeviceGetEnforcedPowerLimit",
        "requested_limit_w": "float, nvmlDeviceGetPowerManagementLimit",
        "default_limit_w": "float, nvmlDeviceGetPowerManagementDefaultLimit",
        "min_limit_w": "float, nvmlDeviceGetPowerManagementLimitConstraints[0]",
        "max_limit_w": "float, nvmlDeviceGetPowerManagementLimitConstraints[1]",
        "persistence": "bool, nvmlDeviceGetPersistenceMode",
        "event_reasons": "int bit mask, nvmlDeviceGetCurrentClocksEventReasons",
        "sm_clock_mhz": "int, nvmlDeviceGetClockInfo(SM)",
        "max_sm_clock_mhz": "int, nvmlDeviceGetMaxClockInfo(SM)",
        "gpu_utilization_percent": "int, nvmlDeviceGetUtilizationRates.gpu",
    },
    # Lifetime nanoseconds: they catch a dip of half a second that no poll of event_reasons sees. A group of
    # its own because fields 270 and 271 take a millisecond each on H200.
    NvmlGroup.SLOWDOWNS: {
        "sw_power_cap_ns": "int, field 74 CLOCKS_EVENT_REASON_SW_POWER_CAP",
        "sw_thermal_ns": "int, field 269 CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
        "hw_thermal_ns": "int, field 270 CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
        "hw_brake_ns": "int, field 271 CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
    },
    NvmlGroup.MEMORY: {
        "used_b": "int, nvmlDeviceGetMemoryInfo.used",
        "total_b": "int, nvmlDeviceGetMemoryInfo.total",
        "ecc_enabled": "bool, nvmlDeviceGetEccMode current",
        "ecc_uncorrected_volatile": "int, nvmlDeviceGetTotalEccErrors(UNCORRECTED, VOLATILE)",
        "ecc_corrected_volatile": "int, nvmlDeviceGetTotalEccErrors(CORRECTED, VOLATILE)",
        "ecc_uncorrected_aggregate": "int, nvmlDeviceGetTotalEccErrors(UNCORRECTED, AGGREGATE)",
        "remap_corrected": "int, nvmlDeviceGetRemappedRows[0]",
        "remap_uncorrected": "int, nvmlDeviceGetRemappedRows[1]",
        "remap_pending": "bool, nvmlDeviceGetRemappedRows[2]",
        "remap_failure": "bool, nvmlDeviceGetRemappedRows[3]",
        "recovery_action": "int, field 230 NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    },
    # Slow-moving and not needed by the fast pass: by location, and the repairs that wait for a reset.
    NvmlGroup.ECC: {
        "dram_corrected_volatile": "int, nvmlDeviceGetMemoryErrorCounter(CORRECTED, VOLATILE, DRAM)",
        "dram_uncorrected_volatile": "int, nvmlDeviceGetMemoryErrorCounter(UNCORRECTED, VOLATILE, DRAM)",
        "sram_corrected_volatile": "int, nvmlDeviceGetMemoryErrorCounter(CORRECTED, VOLATILE, SRAM)",
        "sram_uncorrected_volatile": "int, nvmlDeviceGetMemoryErrorCounter(UNCORRECTED, VOLATILE, SRAM)",
        "sram_uncorrected_aggregate": "int, nvmlDeviceGetSramEccErrorStatus: aggregateUncParity + SecDed",
        "sram_threshold_exceeded": "bool, nvmlDeviceGetSramEccErrorStatus.bThresholdExceeded",
        "remap_banks_none": "int, nvmlDeviceGetRowRemapperHistogram.none: banks without a spare row left",
        "channel_repair_pending": "bool, nvmlDeviceGetRepairStatus.bChannelRepairPending",
        "tpc_repair_pending": "bool, nvmlDeviceGetRepairStatus.bTpcRepairPending",
        "max_sm_clock_mhz": "int, nvmlDeviceGetMaxClockInfo(SM)",
        "app_sm_clock_mhz": "int, nvmlDeviceGetApplicationsClock(SM)",
        "mig_enabled": "bool, nvmlDeviceGetMigMode current",
    },
    NvmlGroup.NVLINK: {
        "states": "list[bool], field NVLINK_GET_STATE by link (scope id)",
        "speeds_mb_s": "list[int], field NVLINK_GET_SPEED by link",
    },
    # A group of its own because it is slow: 20 to 50 ms a GPU on H200, the states beside it take 0.5 ms.
    NvmlGroup.NVLINK_ERRORS: {
        "replay_errors": "list[int], field 161 by link (Hopper and before)",
        "recovery_errors": "list[int], field 162 by link",
        "crc_errors": "list[int], field 163 by link",
    },
    # Blackwell and later; Hopper answers Not Supported for most of it. Each is by link.
    NvmlGroup.NVLINK_BER: {
        "malformed_packets": "list[int], field 206",
        "buffer_overruns": "list[int], field 207",
        "receive_errors": "list[int], field 208",
        "remote_errors": "list[int], field 209",
        "general_errors": "list[int], field 210",
        "integrity_errors": "list[int], field 211",
        "transmit_discards": "list[int], field 212",
        "recoveries": "list[int], field 213 LINK_RECOVERY_SUCCESSFUL_EVENTS",
        "failed_recoveries": "list[int], field 214 LINK_RECOVERY_FAILED_EVENTS",
        "effective_errors": "list[int], field 219",
        "symbol_errors": "list[int], field 221",
        "effective_ber": "list[float], field 220: mantissa and exponent decoded to a rate",
        "symbol_ber": "list[float], field 222: decoded likewise",
    },
    NvmlGroup.FABRIC: {
        "state": "int, nvmlDeviceGetGpuFabricInfoV.state: 1 not started, 2 in progress, 3 completed",
        "status": "int, .status: 0 success, else an NVML error code",
        "health_mask": "int bit mask, .healthMask",
        "clique_id": "int, .cliqueId",
    },
    NvmlGroup.PCIE: {
        "generation": "int, nvmlDeviceGetCurrPcieLinkGeneration",
        "max_generation": "int, nvmlDeviceGetMaxPcieLinkGeneration",
        "width": "int, nvmlDeviceGetCurrPcieLinkWidth",
        "max_width": "int, nvmlDeviceGetMaxPcieLinkWidth",
        "replays": "int, nvmlDeviceGetPcieReplayCounter",
    },
    NvmlGroup.PCIE_ERRORS: {
        "l0_to_recovery": "int, field 169",
        "correctable": "int, field 173",
        "naks_received": "int, field 174",
        "receiver_errors": "int, field 175",
        "bad_tlp": "int, field 176",
        "naks_sent": "int, field 177",
        "bad_dllp": "int, field 178",
        "non_fatal": "int, field 179",
        "fatal": "int, field 180",
    },
    NvmlGroup.PROCESSES: {
        "pids": "list[int], nvmlDeviceGetComputeRunningProcesses",
        "used_mib": "list[float], memory of each of those processes",
    },
    # How this GPU reaches every GPU of the inventory, in its order; its own place holds 0. NOT_KNOWN stands
    # for a peer that was left alone (it hangs, is lost, has no UUID) or for which NVML refused the value.
    NvmlGroup.PEERS: {
        "p2p_nvlink": "list[int], nvmlDeviceGetP2PStatus(NVLINK): 0 OK, else NVML_P2P_STATUS_*",
        "p2p_read": "list[int], nvmlDeviceGetP2PStatus(READ)",
        "topology": "list[int], nvmlDeviceGetTopologyCommonAncestor: 10 single .. 50 system",
    },
}


#: In a list of the group PEERS: nothing is known of this pair. It is no NVML value, so never one that is OK.
NOT_KNOWN = -1
#: No NVML value comes near this; NaN and infinity fail the comparison too.
LARGEST_NUMBER = 2.0**63


@dataclass(frozen=True, slots=True)
class NvmlRefusal:
    """NVML's answer instead of a value: `name` is NOT_SUPPORTED, GPU_IS_LOST, ... without NVML_ERROR_."""

    name: str

    def error(self, what: str) -> SourceError:
        """The SourceError that stands for this answer."""
        text = f"NVML answers {self.name} for {what}"
        if self.name in ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"):
            return NotSupported(text)
        if self.name in ("GPU_IS_LOST", "RESET_REQUIRED"):
            return DeviceLost(text)
        if self.name == "TIMEOUT":
            return SourceTimeout(text)
        return SourceUnavailable(text)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One group of one GPU, read at `mono_s`; getters raise for a refusal or a wrong type."""

    uuid: str
    group: NvmlGroup
    mono_s: float
    values: Mapping[str, Any]

    def _value(self, field: str) -> Any:
        if field not in GROUP_FIELDS[self.group]:
            raise KeyError(f"{field} is not a field of group {self.group}")
        value = self.values.get(field, NvmlRefusal("MISSING"))
        if isinstance(value, NvmlRefusal):
            raise value.error(f"{self.group}.{field}")
        return value

    def supported(self, field: str) -> bool:
        """Whether the platform has this value; an error other than Not Supported still counts as having
        it."""
        try:
            self._value(field)
        except NotSupported:
            return False
        except SourceError:
            return True
        return True

    def integer(self, field: str) -> int:
        """A whole number."""
        value = self._value(field)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ParseError(f"{self.group}.{field} is {value!r}, not a whole number")
        return value

    def number(self, field: str) -> float:
        """A number."""
        value = self._value(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST_NUMBER:
            raise ParseError(f"{self.group}.{field} is {value!r}, not a number")
        return float(value)

    def boolean(self, field: str) -> bool:
        """A yes or no."""
        value = self._value(field)
        if not isinstance(value, bool):
            raise ParseError(f"{self.group}.{field} is {value!r}, not true or false")
        return value

    def integers(self, field: str) -> list[int]:
        """A list of whole numbers (by link)."""
        value = self._value(field)
        if not isinstance(value, list) or not all(
            isinstance(v, int) and not isinstance(v, bool) for v in value
        ):
            raise ParseError(f"{self.group}.{field} is not a list of whole numbers")
        return value

    def numbers(self, field: str) -> list[float]:
        """A list of numbers (by process)."""
        value = self._value(field)
        good = isinstance(value, list) and all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in value
        )
        if not good or any(v != v for v in value):  # NaN differs from itself
            raise ParseError(f"{self.group}.{field} is not a list of numbers")
        return [float(v) for v in value]

    def booleans(self, field: str) -> list[bool]:
        """A list of yes or no (by link)."""
        value = self._value(field)
        if not isinstance(value, list) or not all(isinstance(v, bool) for v in value):
            raise ParseError(f"{self.group}.{field} is not a list of true or false")
        return value


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Who one GPU is; a lost one has `error` and whatever of the rest was known."""

    index: int
    uuid: str | None
    pci_bus_id: str | None = None  # dddd:bb:dd.f, lower case
    name: str | None = None
    serial: str | None = None
    vbios: str | None = None
    minor: int | None = None
    error: str | None = None  # NVML error name, e.g. GPU_IS_LOST


@dataclass(frozen=True, slots=True)
class SystemReading:
    """Versions (nvmlSystemGet{Driver,NVML,CudaDriver}Version) and the count (nvmlDeviceGetCount)."""

    driver_version: str
    nvml_version: str
    cuda_version: int
    device_count: int
