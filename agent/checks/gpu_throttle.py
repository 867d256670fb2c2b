"""gpu.throttle: does the GPU slow itself down for heat or for the power supply?

NVML: nvmlDeviceGetCurrentClocksEventReasons. Idle (0x1), clocks set by an application (0x2), software power
cap (0x4), sync boost (0x10) and display clocks (0x100) are normal life: a busy GPU at its limit shows 0x4.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings, mask_of, no_gpus
from agent.checks.registry import Limits, check
from agent.model import Action, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

NORMAL = 0x1 | 0x2 | 0x4 | 0x10 | 0x100
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
POWER_BRAKE = 0x80

_EXPECTED, _BASIS = "none of 0xe8", Basis.standard("NVML clocks event reasons")
_UNLISTED = advice.person("Look up this event reason in the NVML documentation of the driver in use.")
_COOLING = advice.person("Check coolant flow, inlet temperature and air flow of this GPU.")
_POWER = advice.person("Check PDU and power supply alarms of the rack: hardware asserts the power brake.")
_EITHER = advice.person(
    "Check cooling of this GPU, then PDU and power supply alarms: it does not say which of them slows it."
)
#: Worst first: bit, class while serving, words, what to do.
FAULTS: tuple[tuple[int, ServingClass, str, Action], ...] = (
    (HW_THERMAL, ServingClass.HARD, "hardware thermal slowdown", _COOLING),
    (POWER_BRAKE, ServingClass.SOFT, "hardware power brake", _POWER),
    (SW_THERMAL, ServingClass.SOFT, "software thermal slowdown", _COOLING),
    (HW_SLOWDOWN, ServingClass.SOFT, "hardware slowdown", _EITHER),
)


@check(
    "gpu.throttle",
    title="Throttle reasons",
    source="nvmlDeviceGetCurrentClocksEventReasons",
    serving_class=ServingClass.HARD,
    period_s=2.0,
    fail_for_s=4.0,
    # Longer than the ten seconds between dips of a rack at its power alarm: a periodic brake stays visible.
    clear_for_s=15.0,
    skip=no_gpus,
    action=_COOLING,
)
def gpu_throttle(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No GPU may slow down for heat or power; only hardware thermal slowdown closes a serving gate."""
    yield from judge_readings(sources, profile, NvmlGroup.POWER, _judge)


def _judge(slot: GpuSlot, now: GpuReading) -> Finding:
    reasons = mask_of(now, "event_reasons")
    seen = f"0x{reasons:x}"
    present = [fault for fault in FAULTS if reasons & fault[0]]
    if present:
        _, serving_class, _, action = present[0]
        words = ", ".join(fault[2] for fault in present)
        return Finding(
            slot.subject, Verdict.FAIL, f"{words} (event reasons {seen})", seen, _EXPECTED, action=action,
            serving_class=serving_class, basis=_BASIS,
        )  # fmt: skip
    unknown_bits = reasons & ~(NORMAL | HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE)
    if unknown_bits:
        summary = f"event reason 0x{unknown_bits:x} is not known to this version"
        return Finding(slot.subject, Verdict.WARN, summary, seen, _EXPECTED, action=_UNLISTED, basis=_BASIS)
    return Finding(
        slot.subject, Verdict.PASS, f"no slowdown (event reasons {seen})", seen, _EXPECTED, basis=_BASIS
    )
