"""What each Xid code means for a node that serves; a profile changes single codes under limits.xid.classes.

Compiled from NVIDIA's Xid catalogue (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html)
and from what public health checkers of large fleets withhold traffic for; a comment says where they disagree.
Codes that the catalogue calls unused on Ampere and newer are left out: a line with one is told as unlisted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.checks import advice
from agent.model import NO_ACTION, Action, ActionKind

TABLE_VERSION = "2026.2"


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
    REMAP = "remap"  # 63, 64: what NVML says of the row remapper


@dataclass(frozen=True, slots=True)
class XidRule:
    """One code: its name, its class (the worst one where the text refines it) and what to do."""

    name: str
    xid_class: XidClass
    action: Action
    refine: Refine | None = None
    #: Whether the same code twice on one GPU within the repeat window points at the hardware.
    repeats: bool = False


_I, _H, _R, _W, _INFO = (
    XidClass.IMMEDIATE,
    XidClass.HARD,
    XidClass.RESTART,
    XidClass.WATCH,
    XidClass.INFO,
)
#: Row 64 of a GPU whose NVML says that remapping has failed: no reset repairs it.
REPLACE = advice.reseat("Drain the node and replace the GPU: its memory can no longer be repaired.")
_LINK = Action(
    ActionKind.RESET_GPU,
    "Drain the node and reset the GPUs and the fabric; reseat or replace the GPU if it recurs.",
)
_SEEN = advice.person("Watch it; open a case with the vendor if it comes back.")
_POWER = advice.reseat("Drain the node and check the power cables of the GPU board.")


def _restart(name: str, *codes: int) -> dict[int, XidRule]:
    """Codes of one kind that end with a restart of the engine."""
    return {code: XidRule(name, _R, advice.RESTART_ENGINE) for code in codes}


def _watch(name: str, *codes: int) -> dict[int, XidRule]:
    """Codes of one kind that are only told."""
    return {code: XidRule(name, _W, _SEEN) for code in codes}


TABLE: dict[int, XidRule] = {
    **_restart("GPU stopped processing", 8, 43),
    **_restart("corrupted push buffer", 11, 25, 32),
    13: XidRule("graphics engine exception", _R, advice.RESTART_ENGINE, repeats=True),
    14: XidRule("injected test error", _INFO, NO_ACTION),
    31: XidRule("GPU memory page fault", _R, advice.RESTART_ENGINE, repeats=True),
    # gpud calls 38 and 44 fatal, NVIDIA's catalogue says ignore.
    **_watch("driver firmware error", 37, 38),
    **_restart("copy engine exception", 39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
    **_watch("graphics engine fault during context switch", 44),
    45: XidRule("preemptive cleanup after an earlier error", _R, advice.RESTART_ENGINE),
    46: XidRule("GPU stopped processing", _I, advice.RESET_GPU),
    48: XidRule("double bit ECC error", _I, advice.RESET_GPU),
    54: XidRule("auxiliary power not connected", _H, _POWER),
    **_restart("video processor exception", 60),
    62: XidRule("internal micro-controller halt", _I, advice.RESET_GPU),
    # gpud calls 63 fatal, others a warning; what counts is whether a remap waits, see Refine.REMAP.
    63: XidRule(
        "memory row remapped",
        _INFO,
        advice.person("Reset the GPU when gpu.remap shows a pending remap."),
        Refine.REMAP,
    ),
    64: XidRule("memory row could not be remapped", _I, REPLACE, Refine.REMAP),
    **_watch("illegal access by the driver", 66, 67),
    **_restart("video decoder exception", 68, 83, 84, 88, 89, 96, 97, 98),
    69: XidRule("graphics engine class error", _R, advice.RESTART_ENGINE),
    74: XidRule("NVLink error", _I, _LINK, Refine.NVLINK_REGISTERS),
    **_watch("vGPU start error", 78),
    79: XidRule("GPU has fallen off the bus", _I, advice.REBOOT),
    **_restart("corrupted data sent to the GPU", 80),
    **_restart("JPEG engine exception", 82, *range(99, 106)),
    **_restart("optical flow engine exception", 86, 139),
    92: XidRule("high rate of corrected ECC errors", _INFO, advice.person("Watch gpu.ecc and gpu.remap.")),
    93: XidRule("InfoROM wear limit", _INFO, NO_ACTION),
    94: XidRule("contained memory error", _R, advice.RESTART_ENGINE),
    95: XidRule("uncontained memory error", _I, advice.RESET_GPU),
    **{code: XidRule("test message of the BMC", _INFO, NO_ACTION) for code in (106, 107)},
    108: XidRule("NVLink remote translation error", _INFO, NO_ACTION),
    # Load alone triggers this one for some users, so one is a warning; a second one is not.
    109: XidRule("context switch timeout", _R, advice.RESET_GPU, repeats=True),
    110: XidRule("security fault", _I, advice.RESET_GPU),
    119: XidRule("GSP RPC timeout", _I, advice.RESET_GPU),
    120: XidRule("GSP error", _I, advice.RESET_GPU),
    121: XidRule("corrected errors on the link to the CPU", _INFO, advice.person("Reset the GPU some time.")),
    136: XidRule("link training failed", _I, advice.RESET_GPU),
    **_restart("illegal access over NVLink", 137),
    140: XidRule("unrecovered ECC error", _I, advice.RESET_GPU),
    141: XidRule("CUDA fast path error", _INFO, NO_ACTION),
    **_watch("video encoder exception", 142),
    143: XidRule("GPU initialisation error", _I, advice.RESET_GPU),
    # Azure's checker leaves 94, 95, 140 and 144 onwards out.
    **{code: XidRule("NVLink error", _I, _LINK, Refine.FATAL_WORD) for code in range(144, 151)},
    151: XidRule("key rotation error", _I, advice.RESET_GPU),
    152: XidRule("informational event", _INFO, NO_ACTION),
    153: XidRule("informational event", _INFO, NO_ACTION),
    154: XidRule("recovery action changed", _I, advice.REBOOT, Refine.RECOVERY_ACTION),
    155: XidRule("NVLink software error", _I, advice.RESET_GPU),
    156: XidRule("resource retired", _I, advice.RESET_GPU),
    157: XidRule("no resource left to retire", _W, advice.SUPPORT),
    158: XidRule("fatal GPU timeout", _I, advice.RESET_GPU),
    **_watch("error on the link to the CPU", 159),
    160: XidRule("channel retired", _INFO, NO_ACTION),
    **_watch("channel could not be retired", 161),
    162: XidRule("power smoothing on again", _INFO, NO_ACTION),
    **_watch("power smoothing off or worn out", 163, 164, 165),
    **_watch("secure NVLink error", 166, 170),
    # The catalogue gives no action for these; by their names they are like 119, 62 and 48.
    167: XidRule("fatal PCIe timeout", _I, advice.REBOOT),
    **_watch("reduced GPU memory", 168),
    169: XidRule("internal micro-controller halt", _I, advice.RESET_GPU),
    171: XidRule("uncorrected DRAM error", _I, advice.RESET_GPU),
    172: XidRule("uncorrected SRAM error", _I, advice.RESET_GPU),
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
