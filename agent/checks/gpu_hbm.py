"""gpu.hbm_temp: is the GPU's memory hotter than it may be?

NVML: field 82 NVML_FI_DEV_MEMORY_TEMP against nvmlDeviceGetTemperatureThreshold(MEM_MAX). A part without the
sensor reads 0 C, which is no reading.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings, no_gpus, plausible_c
from agent.checks.registry import Limits, check
from agent.errors import NotSupported, SourceUnavailable
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

#: A threshold below this is the placeholder of a part that has none.
LEAST_MAX_C = 60


class HbmLimits(Limits):
    """Tolerances of gpu.hbm_temp."""

    max_c: int = Field(
        95, description="Highest memory temperature of a GPU that states none itself, in C", ge=60, le=150
    )
    near_c: int = Field(3, description="Degrees C below the highest one that are a warning", ge=0, le=30)


def _no_memory_sensor(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or (
        "GPU and CPU share their memory: it has no sensor of the GPU" if profile.gpus.unified_memory else None
    )


@check(
    "gpu.hbm_temp",
    title="Memory temperature",
    source="field 82 NVML_FI_DEV_MEMORY_TEMP, nvmlDeviceGetTemperatureThreshold(MEM_MAX)",
    # One cooling loop heats the memory of a whole row: that must degrade nodes and not close them all.
    serving_class=ServingClass.SOFT,
    limits=HbmLimits,
    period_s=10.0,
    fail_for_s=20.0,
    clear_for_s=30.0,
    skip=_no_memory_sensor,
    action=advice.COOL,
)
def gpu_hbm_temp(sources: Sources, profile: NodeProfile, limits: HbmLimits) -> Iterator[Finding]:
    """The memory of each GPU must stay below the temperature that the device itself states."""
    yield from judge_readings(
        sources, profile, NvmlGroup.THERMAL, lambda slot, now: _judge(slot, now, limits)
    )


def _judge(slot: GpuSlot, now: GpuReading, limits: HbmLimits) -> Finding:
    seen_c = plausible_c(now, "memory_temperature_c")
    if seen_c <= 0:
        raise SourceUnavailable(f"the memory temperature reads {seen_c} C, which is no reading")
    max_c, basis = _highest(now, limits)
    want = f"<= {max_c}"
    if seen_c > max_c:
        summary = f"memory at {seen_c} C, at most {max_c} C allowed"
        return Finding(slot.subject, Verdict.FAIL, summary, seen_c, want, "C", advice.COOL, basis=basis)
    if seen_c > max_c - limits.near_c:
        summary = f"memory at {seen_c} C, close to the {max_c} C allowed"
        return Finding(slot.subject, Verdict.WARN, summary, seen_c, want, "C", advice.COOL, basis=basis)
    return Finding(slot.subject, Verdict.PASS, f"memory at {seen_c} C", seen_c, want, "C", basis=basis)


def _highest(now: GpuReading, limits: HbmLimits) -> tuple[int, Basis]:
    """The device's own limit, or that of the check for a device that has none."""
    try:
        stated_c = plausible_c(now, "memory_max_c")
    except NotSupported:
        return limits.max_c, Basis.limit("max_c")
    if stated_c < LEAST_MAX_C:
        return limits.max_c, Basis.limit("max_c")
    return stated_c, Basis.device("MEM_MAX temperature threshold")
