"""What each Xid code means for a node that serves; a profile changes single codes under limits.xid.classes.

Compiled from NVIDIA's Xid catalogue (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html)
and from what public health checkers of large fleets withhold traffic for; a comment says where they disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.checks import advice
from agent.model import NO_ACTION, Action

TABLE_VERSION = "2026.1"


class XidClass(StrEnum):
    """What an Xid does to the gate, worst first."""

    IMMEDIATE = "immediate"  # FAIL, closes the gate at once
    HARD = "hard"  # FAIL, closes the gate after fail_for
    RESTART = "restart"  # the application's fault or a contained one: WARN, FAIL when it repeats
    WATCH = "watch"  # WARN
    INFO = "info"  # told in a PASS
    IGNORE = "ignore"


WORST_FIRST = tuple(XidClass)


class Refine(StrEnum):
    """Codes whose text decides how bad they are."""

    NVLINK_REGISTERS = "nvlink_registers"  # 74: the seven registers
    FATAL_WORD = "fatal_word"  # 144-150: "Fatal" or "Nonfatal"
    RECOVERY_ACTION = "recovery_action"  # 154: the action that the driver asks for


@dataclass(frozen=True, slots=True)
class XidRule:
    """One code: its name, its class (the worst one where the text refines it) and what to do."""

    name: str
    xid_class: XidClass
    action: Action
    refine: Refine | None = None
    #: Whether the same code twice on one GPU within the repeat window points at the hardware.
    repeats: bool = False


_I, _H, _R, _INFO = XidClass.IMMEDIATE, XidClass.HARD, XidClass.RESTART, XidClass.INFO
_REPLACE = advice.reseat("Drain the node and replace the GPU: its memory can no longer be repaired.")
_LINK = advice.reseat(
    "Drain the node and reset the GPUs and the fabric; reseat or replace the GPU if it recurs."
)

TABLE: dict[int, XidRule] = {
    8: XidRule("GPU stopped processing", _R, advice.RESTART_ENGINE),
    13: XidRule("graphics engine exception", _R, advice.RESTART_ENGINE, repeats=True),
    31: XidRule("GPU memory page fault", _R, advice.RESTART_ENGINE, repeats=True),
    32: XidRule("corrupted push buffer", _R, advice.RESTART_ENGINE),
    43: XidRule("GPU stopped processing", _R, advice.RESTART_ENGINE),
    45: XidRule("preemptive cleanup after an earlier error", _R, advice.RESTART_ENGINE),
    46: XidRule("GPU stopped processing", _I, advice.RESET_GPU),
    48: XidRule("double bit ECC error", _I, advice.RESET_GPU),
    62: XidRule("internal micro-controller halt", _I, advice.RESET_GPU),
    63: XidRule(
        "memory row remapped", _INFO, advice.person("Reset the GPU when gpu.remap shows a pending remap.")
    ),
    64: XidRule("memory row could not be remapped", _I, _REPLACE),
    68: XidRule("video decoder exception", _R, advice.RESTART_ENGINE),
    69: XidRule("graphics engine class error", _R, advice.RESTART_ENGINE),
    74: XidRule("NVLink error", _I, _LINK, Refine.NVLINK_REGISTERS),
    79: XidRule("GPU has fallen off the bus", _I, advice.REBOOT),
    92: XidRule("high rate of corrected ECC errors", _INFO, advice.person("Watch gpu.ecc and gpu.remap.")),
    94: XidRule("contained memory error", _R, advice.RESTART_ENGINE),
    95: XidRule("uncontained memory error", _I, advice.RESET_GPU),
    # Load alone triggers this one for some users, so one is a warning; a second one is not.
    109: XidRule("context switch timeout", _R, advice.RESET_GPU, repeats=True),
    110: XidRule("security fault", _I, advice.RESET_GPU),
    119: XidRule("GSP RPC timeout", _I, advice.RESET_GPU),
    120: XidRule("GSP error", _I, advice.RESET_GPU),
    136: XidRule("link training failed", _I, advice.RESET_GPU),
    140: XidRule("unrecovered ECC error", _I, advice.RESET_GPU),
    143: XidRule("GPU initialisation error", _I, advice.RESET_GPU),
    **{code: XidRule("NVLink error", _I, _LINK, Refine.FATAL_WORD) for code in range(144, 151)},
    151: XidRule("key rotation error", _I, advice.RESET_GPU),
    152: XidRule("informational event", _INFO, NO_ACTION),
    153: XidRule("informational event", _INFO, NO_ACTION),
    154: XidRule("recovery action changed", _I, advice.REBOOT, Refine.RECOVERY_ACTION),
    155: XidRule("NVLink software error", _I, advice.RESET_GPU),
    156: XidRule("resource retired", _I, advice.RESET_GPU),
    158: XidRule("fatal GPU timeout", _I, advice.RESET_GPU),
}

#: A code that the table does not have: told, never guessed.
UNLISTED = XidRule("not in the table of this version", XidClass.WATCH, advice.SUPPORT)

#: NVML_GPU_RECOVERY_ACTION_*: words, class, what to do.
RECOVERY: dict[int, tuple[str, XidClass, Action]] = {
    0: ("none", XidClass.INFO, NO_ACTION),
    1: ("reset the GPU", XidClass.IMMEDIATE, advice.RESET_GPU),
    2: ("reboot the node", XidClass.IMMEDIATE, advice.REBOOT),
    3: ("drain peer-to-peer traffic", XidClass.WATCH, advice.RESET_GPU),
    4: ("drain and reset the GPU", XidClass.IMMEDIATE, advice.RESET_GPU),
    5: ("recover the IMEX domain", XidClass.HARD, advice.RESET_GPU),
    6: ("reset the bus", XidClass.IMMEDIATE, advice.REBOOT),
    7: ("reboot the system", XidClass.IMMEDIATE, advice.REBOOT),
}

#: Xid 74, Hopper: bits by register (0-based) that may be ignored or report a threshold without an error.
HARMLESS_74_BITS: dict[int, int] = {
    0: 1 << 0 | 1 << 23 | 1 << 30,
    2: 0,
    3: 0,
    4: 1 << 20 | 1 << 23 | 1 << 26 | 1 << 29,
}
