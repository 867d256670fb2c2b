"""gpu.thermal_margin: degrees left until the GPU slows itself down.

NVML: nvmlDeviceGetMarginTemperature (driver 570 and newer) and, where that is missing or not to be believed,
the slowdown threshold plus signed field 194 NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT minus the temperature.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings, measured, no_gpus, plausible_c
from agent.checks.registry import Limits, check
from agent.errors import NotSupported, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

MEASURES = {
    "gpu_temperature_celsius": "temperature_c",
    "gpu_memory_temperature_celsius": "memory_temperature_c",
    "gpu_tlimit_margin_celsius": "margin_c",
}
#: For a GPU or driver (before 570) without a margin; {} is the check.
USE_TEMPERATURE = (
    "Where a GPU or its driver (before 570) has no margin, judge by temperature:"
    " `limits: {{{}: {{use_temperature: true}}}}`."
)
#: Slowdown temperatures below this are placeholders of parts that do not have one.
LEAST_SLOWDOWN_C = 60


class MarginLimits(Limits):
    """Tolerances of gpu.thermal_margin."""

    min_margin_c: int = Field(5, description="Least degrees C to the slowdown limit", ge=0, le=60)
    hotspot_c: int = Field(
        15,
        description="Degrees C of the hottest spot above the GPU temperature",
        ge=0,
        le=60,
    )
    use_temperature: bool = Field(
        False,
        description="Without a margin reading, judge slowdown limit minus temperature",
    )


@check(
    "gpu.thermal_margin",
    title="Thermal margin",
    source="nvmlDeviceGetMarginTemperature, nvmlDeviceGetTemperatureThreshold(SLOWDOWN), field 194",
    serving_class=ServingClass.SOFT,
    limits=MarginLimits,
    period_s=2.0,
    fail_for_s=6.0,
    clear_for_s=15.0,
    skip=no_gpus,
    action=advice.COOL,
    if_unreadable=USE_TEMPERATURE.format("gpu.thermal_margin"),
)
def gpu_thermal_margin(sources: Sources, profile: NodeProfile, limits: MarginLimits) -> Iterator[Finding]:
    """Each GPU must keep a distance from its slowdown limit; a reading of zero or less is cross-checked."""
    yield from judge_readings(
        sources,
        profile,
        NvmlGroup.THERMAL,
        lambda slot, now: replace(
            _judge(slot, now, profile.gpus.slowdown_c, limits), measures=measured(now, MEASURES)
        ),
    )


def _judge(slot: GpuSlot, now: GpuReading, slowdown_c: int | None, limits: MarginLimits) -> Finding:
    want = f">= {limits.min_margin_c}"
    try:
        margin_c = plausible_c(now, "margin_c")
    except NotSupported:
        if slowdown_c is None and not limits.use_temperature:
            raise
        margin_c = derived_c(now, slowdown_c)
        summary = f"{margin_c} C to the slowdown limit, from the GPU temperature (this GPU reports no margin)"
        if margin_c < limits.min_margin_c:
            return _finding(slot, Verdict.FAIL, summary, margin_c, want)
        return _finding(slot, Verdict.PASS, summary, margin_c, want)
    if margin_c >= max(limits.min_margin_c, 1):
        if (contradiction := _contradiction(now, margin_c)) is not None:
            return _finding(slot, Verdict.FAIL, contradiction, margin_c, want)
        return _finding(slot, Verdict.PASS, f"{margin_c} C to the slowdown limit", margin_c, want)
    if margin_c > 0:
        summary = f"only {margin_c} C to the slowdown limit, at least {limits.min_margin_c} C wanted"
        return _finding(slot, Verdict.FAIL, summary, margin_c, want)
    return _cross_checked(slot, now, margin_c, slowdown_c, limits)


def _contradiction(now: GpuReading, margin_c: int) -> str | None:
    """A margin that a GPU beyond its own slowdown temperature cannot have: the sensor behind it is stuck."""
    try:
        temperature_c, slowdown_c = plausible_c(now, "temperature_c"), plausible_c(now, "slowdown_c")
    except SourceError:  # without both there is nothing to compare; gpu.lost needs the temperature
        return None
    if slowdown_c < LEAST_SLOWDOWN_C or temperature_c < slowdown_c:
        return None
    return f"GPU at {temperature_c} C, it slows down from {slowdown_c} C, yet its margin reads {margin_c} C"


def _cross_checked(
    slot: GpuSlot, now: GpuReading, margin_c: int, slowdown_c: int | None, limits: MarginLimits
) -> Finding:
    """Some parts read zero or less while cool: such a margin counts only if the temperature agrees."""
    want = f">= {limits.min_margin_c}"
    temperature_c, left_c = plausible_c(now, "temperature_c"), derived_c(now, slowdown_c)
    limit_c = temperature_c + left_c
    seen = f"margin reads {margin_c} C, GPU at {temperature_c} C, its T.Limit at {limit_c} C"
    if left_c < limits.min_margin_c + limits.hotspot_c:
        return _finding(slot, Verdict.FAIL, f"overheating: {seen}", margin_c, want)
    return _finding(slot, Verdict.WARN, f"margin not credible: {seen}", margin_c, want)


def derived_c(now: GpuReading, fallback_c: int | None) -> int:
    """Degrees from the GPU temperature to the point from which the margin counts (T.Limit zero).

    `fallback_c` is where a GPU slows down that states no threshold itself.
    """
    temperature_c = plausible_c(now, "temperature_c")
    try:
        slowdown_c = plausible_c(now, "slowdown_c")
    except NotSupported:
        if fallback_c is None:
            raise
        return fallback_c - temperature_c
    if slowdown_c < LEAST_SLOWDOWN_C and fallback_c is not None:
        return fallback_c - temperature_c
    return slowdown_c + plausible_c(now, "slowdown_offset_c") - temperature_c


def _finding(slot: GpuSlot, verdict: Verdict, summary: str, margin_c: int, want: str) -> Finding:
    return Finding(
        slot.subject, verdict, summary, margin_c, want, "C", advice.COOL, basis=Basis.limit("min_margin_c")
    )
