"""gpu.clocks: does a busy GPU run as fast as it could, and may it?

NVML: nvmlDeviceGetClockInfo(SM), nvmlDeviceGetMaxClockInfo(SM), nvmlDeviceGetApplicationsClock(SM),
nvmlDeviceGetUtilizationRates, nvmlDeviceGetCurrentClocksEventReasons. A busy GPU at its power cap runs well
below its highest clock, which is normal (an H200 under a matrix product: 1440 to 1530 of 1980 MHz, reason
0x4). A busy GPU that is slow although the driver states no reason is not; throttling is gpu.throttle's.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.gpu_throttle import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL
from agent.checks.gpus import GpuSlot, count_of, judge_readings, mask_of, no_gpus, read
from agent.checks.registry import Limits, check
from agent.errors import NotSupported, ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

APPLICATION_CLOCKS = 0x2
POWER_CAP = 0x4
SYNC_BOOST = 0x10
#: Reasons that explain a low clock and are told, or are normal.
EXPLAINED = APPLICATION_CLOCKS | POWER_CAP | SYNC_BOOST | HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE

_RESET_CLOCKS = advice.play(
    "gpu", "Reset the clocks with nvidia-smi -rac and nvidia-smi -rgc, or find who set them and why."
)
_HELD = advice.person(
    "Look for locked clocks (nvidia-smi -rgc), a cap in the BMC or a power supply in a safe mode: cut its "
    "power for a minute if nothing else helps."
)
_WRONG_PART = advice.person("Check that this is the right GPU, or correct gpus.max_sm_clock_mhz.")


class ClockLimits(Limits):
    """Tolerances of gpu.clocks."""

    busy_percent: int = Field(90, description="Utilisation from which a GPU counts as busy", ge=1, le=100)
    least_percent: int = Field(
        60, description="Lowest SM clock of a busy GPU, in percent of its highest", ge=1, le=100
    )
    held_for_s: float = Field(
        20.0, description="Seconds that a busy GPU may run below that without a reason", ge=0, le=600
    )
    tolerance_mhz: int = Field(
        30, description="MHz that highest and application clock may be below what is wanted", ge=0
    )


@check(
    "gpu.clocks",
    title="Clocks",
    source="nvmlDeviceGetClockInfo(SM), MaxClockInfo, ApplicationsClock, UtilizationRates, event reasons",
    serving_class=ServingClass.SOFT,
    limits=ClockLimits,
    period_s=30.0,
    fail_for_s=30.0,
    skip=no_gpus,
    action=_HELD,
)
def gpu_clocks(sources: Sources, profile: NodeProfile, limits: ClockLimits) -> Iterator[Finding]:
    """A GPU must offer its clock, have no application clock below it, and reach it under load."""
    yield from judge_readings(
        sources,
        profile,
        NvmlGroup.POWER,
        lambda slot, now: _judge(slot, sources, profile, now, limits),
        NvmlGroup.ECC,
    )


def _judge(
    slot: GpuSlot, sources: Sources, profile: NodeProfile, now: GpuReading, limits: ClockLimits
) -> Finding:
    clock_mhz, max_mhz = count_of(now, "sm_clock_mhz"), count_of(now, "max_sm_clock_mhz")
    if max_mhz == 0:
        raise ParseError("the highest SM clock reads 0 MHz")
    slow_for_s = _slow_for_s(sources, now, clock_mhz * 100 / max_mhz, limits)
    want_mhz = profile.gpus.max_sm_clock_mhz
    if want_mhz is not None and max_mhz < want_mhz - limits.tolerance_mhz:
        summary = f"offers {max_mhz} MHz at most, expected {want_mhz} MHz"
        return Finding(
            slot.subject, Verdict.FAIL, summary, max_mhz, want_mhz, "MHz", _WRONG_PART,
            basis=Basis.profile("gpus.max_sm_clock_mhz"),
        )  # fmt: skip
    if slow_for_s is not None and slow_for_s >= limits.held_for_s:
        summary = f"busy, yet at {clock_mhz} of {max_mhz} MHz for {slow_for_s:.0f} s without a reason stated"
        return Finding(
            slot.subject, Verdict.WARN, summary, clock_mhz, f">= {limits.least_percent} % of {max_mhz}",
            "MHz", _HELD, basis=Basis.limit("least_percent"),
        )  # fmt: skip
    return _judge_application_clock(slot, sources, clock_mhz, max_mhz, limits)


def _slow_for_s(sources: Sources, now: GpuReading, percent: float, limits: ClockLimits) -> float | None:
    """Since when the GPU is busy and slow without a reason, in seconds; None when it is not so now."""
    unexplained = not mask_of(now, "event_reasons") & EXPLAINED
    busy = count_of(now, "gpu_utilization_percent") >= limits.busy_percent
    slow = busy and unexplained and percent < limits.least_percent
    name = f"gpu.clocks/{now.uuid}/slow"
    seen = sources.series.record(name, float(slow), now.mono_s, limits.held_for_s + 60.0)
    since_s: float | None = None
    for sample in reversed(seen.samples):
        if not sample.value:
            break
        since_s = sample.mono_s
    return None if since_s is None else now.mono_s - since_s


def _judge_application_clock(
    slot: GpuSlot, sources: Sources, clock_mhz: int, max_mhz: int, limits: ClockLimits
) -> Finding:
    basis = Basis.device("highest SM clock")
    try:
        app_mhz = count_of(read(sources, slot, NvmlGroup.ECC), "app_sm_clock_mhz")
    except NotSupported:  # newer parts have locked clocks only
        app_mhz = max_mhz
    if app_mhz < max_mhz - limits.tolerance_mhz:
        summary = f"application clock set to {app_mhz} of {max_mhz} MHz"
        return Finding(
            slot.subject, Verdict.WARN, summary, app_mhz, max_mhz, "MHz", _RESET_CLOCKS, basis=basis
        )
    summary = f"{clock_mhz} of {max_mhz} MHz"
    return Finding(slot.subject, Verdict.PASS, summary, clock_mhz, max_mhz, "MHz", basis=basis)
