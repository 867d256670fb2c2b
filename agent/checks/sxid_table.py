"""What each SXid code of an NVSwitch means; a profile changes single codes under limits.sxid.classes.

From NVIDIA's fabric manager guide, the appendix on SXid errors:
https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html
NVSwitches up to the third generation (A100 to H200) write SXid lines. Those of Blackwell write none: Xid 144
to 150 of the GPUs and the fabric manager's log tell of them.
"""

from __future__ import annotations

from enum import StrEnum

from agent.checks import advice
from agent.model import Action, ActionKind

TABLE_VERSION = "2026.1"


class SxidClass(StrEnum):
    """What an SXid does to the gate, worst first."""

    ALWAYS_FATAL = "always_fatal"  # FAIL, only a reboot of the node ends it
    FATAL = "fatal"  # FAIL, the GPUs that use the port must be reset
    NONFATAL = "nonfatal"  # WARN
    INFO = "info"  # told in a PASS: corrected, or followed by another one that counts
    IGNORE = "ignore"


WORST_FIRST = tuple(SxidClass)

REBOOT = Action(
    ActionKind.REBOOT, "Drain and reboot the node: no reset of the GPUs ends this fault of the switch."
)
RESET_ALL = Action(
    ActionKind.RESET_GPU,
    "Stop the engines and nvidia-fabricmanager, reset all GPUs at once (nvidia-smi -r), start it again; have"
    " the baseboard looked at if it recurs.",
)
MECHANICS = advice.reseat("Drain the node and check how GPUs and NVLink boards are seated.")
WATCH = advice.person("Watch nvlink.links and nvlink.errors; have the baseboard looked at if it goes on.")
COOLING = advice.person("Check the node's cooling: an NVSwitch was too hot.")

#: Names of those that are met most often.
NAMES: dict[int, str] = {
    10003: "host error",
    10004: "NVSwitch too hot",
    10005: "NVSwitch cool again",
    11001: "invalid ingress command",
    11004: "access was denied",
    12020: "egress buffer fault",
    12028: "access was not allowed",
    19084: "link fault",
    20001: "NVLink replays",
    20012: "link did not train",
    20034: "link fault: LTSSM fault up",
    22012: "NVLink fault: link down",
    24007: "GPU behind the port does not answer",
}

_ALWAYS_FATAL = {12020, 22003, 22011, *range(23001, 23018)}
_CORRECTED = {
    11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068,
    19071, 24001, 24002, 24003, 22013, 10001, 10002, 10005,
}  # fmt: skip
_NONFATAL = {11004, 12028, 20001, 20012, 10004}
#: Non-fatal by its word, but the guide asks for a reset of everything all the same.
_FATAL_DESPITE_ITS_WORD = {19084}


def class_of(code: int, word: SxidClass | None) -> SxidClass:
    """The class of a code; `word` is what its line says. Without a word an unknown code counts as fatal."""
    if code in _ALWAYS_FATAL:
        return SxidClass.ALWAYS_FATAL
    if code in _FATAL_DESPITE_ITS_WORD or word is SxidClass.FATAL:
        return SxidClass.FATAL
    if code in _CORRECTED:
        return SxidClass.INFO
    if word is not None:
        return word
    return SxidClass.NONFATAL if code in _NONFATAL else SxidClass.FATAL


def action_of(code: int, sxid_class: SxidClass) -> Action:
    """What to do about it."""
    if code == 20012:
        return MECHANICS
    if code == 10004:
        return COOLING
    return {SxidClass.ALWAYS_FATAL: REBOOT, SxidClass.FATAL: RESET_ALL}.get(sxid_class, WATCH)
