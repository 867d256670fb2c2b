"""What the NVML child reads of NVLinks and their fabric, through nvidia-ml-py.

Field ids: https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
"""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml as nv

from agent.sources.gpu_reading import GROUP_FIELDS, NvmlGroup
from agent.sources.nvml_child_calls import Handle, Json, ask, field_values, lasting, refusal, refused

#: A link that is not there answers with either of these.
NO_LINK = ("NOT_SUPPORTED", "INVALID_ARGUMENT")
#: Links asked for where the driver does not tell how many a GPU has (Hopper and Blackwell have 18).
DEFAULT_LINKS = 18
MAX_LINKS = 64

FIELD_LINK_COUNT = 91
FIELD_LINK_REPLAY, FIELD_LINK_RECOVERY, FIELD_LINK_CRC = 161, 162, 163
FIELD_LINK_SPEED, FIELD_LINK_STATE = 164, 165
FIELD_EFFECTIVE_BER, FIELD_SYMBOL_BER = 220, 222
#: NVML_FI_DEV_NVLINK_COUNT_*, in the order of GROUP_FIELDS.
BER_GROUP_FIELDS = {
    "malformed_packets": 206,
    "buffer_overruns": 207,
    "receive_errors": 208,
    "remote_errors": 209,
    "general_errors": 210,
    "integrity_errors": 211,
    "transmit_discards": 212,
    "recoveries": 213,
    "failed_recoveries": 214,
    "effective_errors": 219,
    "symbol_errors": 221,
    "effective_ber": FIELD_EFFECTIVE_BER,
    "symbol_ber": FIELD_SYMBOL_BER,
}
#: NVML_NVLINK_STATE_*: active, and asleep to save power; 0 is inactive, 3 active with its traffic disabled.
LINK_UP = (1, 2)
#: NVML_NVLINK_BER_* of nvml.h, which the binding does not have: four bits of mantissa above the exponent's
#: eight; the rate is mantissa * 10^-exponent.
BER_MANTISSA_SHIFT, BER_MANTISSA_MASK, BER_EXPONENT_MASK = 8, 0xF, 0xFF


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
    if columns is None:
        return dict.fromkeys(fields, refusal("NOT_SUPPORTED"))
    states, *counters = columns
    return {
        field: by_link(of_links_up(states, counter)) for field, counter in zip(fields, counters, strict=True)
    }


def nvlink_ber(handle: Handle) -> Json:
    """Counters and bit error rates of all links (Blackwell and newer)."""
    columns = link_columns(handle, *BER_GROUP_FIELDS.values())
    if columns is None:
        return dict.fromkeys(BER_GROUP_FIELDS, refusal("NOT_SUPPORTED"))
    values = dict(zip(BER_GROUP_FIELDS, columns[1:], strict=True))
    for name in ("effective_ber", "symbol_ber"):
        values[name] = [value if refused(value) else error_rate(value) for value in values[name]]
    return {name: by_link(of_links_up(columns[0], column)) for name, column in values.items()}


def error_rate(packed: int) -> float:
    """NVML's packed bit error rate as a number."""
    mantissa = packed >> BER_MANTISSA_SHIFT & BER_MANTISSA_MASK
    # By way of text: 10.0 ** -255 is off by a few units in the last place, the decimal literal is not.
    return float(f"{mantissa}e-{packed & BER_EXPONENT_MASK}")


def link_columns(handle: Handle, *fields: int) -> list[list[Any]] | None:
    """State and the `fields` of the links that are there, read in one call; None without any link."""
    count = lasting(handle, link_count)
    links = range(DEFAULT_LINKS if refused(count) else min(count, MAX_LINKS))
    ids = (FIELD_LINK_STATE, *fields)
    answers = field_values(handle, [(field, link) for field in ids for link in links]) if links else []
    states = answers[: len(links)]
    present = [link for link in links if not refused(states[link]) or states[link]["error"] not in NO_LINK]
    starts = range(0, len(answers), len(links) or 1)
    return [[answers[start + link] for link in present] for start in starts] if present else None


def link_count(handle: Handle) -> Any:
    """How many links this kind of GPU has."""
    return field_values(handle, [(FIELD_LINK_COUNT, 0)])[0]


def speed_of(state: Any, speed: Any) -> Any:
    """A link that is down may refuse its speed: it has none."""
    return 0 if refused(speed) and not refused(state) and state not in LINK_UP else speed


def of_links_up(states: list[Any], values: list[Any]) -> list[Any]:
    """Values in which a link that is not up counts 0 for what it refuses, if any link that is up answers.

    NVML lists links that a board does not wire (36 of which 18 are up on B300): they must not stand for all.
    """
    up = [not refused(state) and state in LINK_UP for state in states]
    if not any(is_up and not refused(value) for is_up, value in zip(up, values, strict=True)):
        return values
    spare = [not is_up and not refused(state) for is_up, state in zip(up, states, strict=True)]
    return [0 if idle and refused(value) else value for idle, value in zip(spare, values, strict=True)]


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
