"""gpu.power_limit, gpu.persistence: may the GPU draw what it was given, and does the driver keep its state?

NVML: nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimit,
nvmlDeviceGetPowerManagementDefaultLimit, nvmlDeviceGetPersistenceMode. The enforced limit can be below the
requested one: then an out-of-band hand lowered it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings, measured, no_gpus
from agent.checks.registry import Limits, check
from agent.model import Action, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

MEASURES = {
    "gpu_power_draw_watts": "draw_w",
    "gpu_power_limit_watts": "enforced_limit_w",
    "gpu_utilization_percent": "gpu_utilization_percent",
    "gpu_sm_clock_megahertz": "sm_clock_mhz",
}
_SET_LIMIT = advice.play(
    "gpu", "Set the power limit of the profile with nvidia-smi -pl and enable nvidia-persistenced."
)
_PERSISTENCE = advice.play("gpu", "Enable nvidia-persistenced: systemctl enable --now nvidia-persistenced.")
_OUT_OF_BAND = advice.person(
    "Look for a power cap in the BMC or at the PDU: it is not the driver's own setting."
)


class PowerLimits(Limits):
    """Tolerances of gpu.power_limit."""

    tolerance_w: float = Field(
        1.0, description="Difference from the provisioned limit that is allowed, in W", ge=0
    )


@check(
    "gpu.power_limit",
    title="Power limit",
    source="nvmlDeviceGetEnforcedPowerLimit; nvmlDeviceGetPowerManagementDefaultLimit if none is given",
    serving_class=ServingClass.SOFT,
    limits=PowerLimits,
    period_s=2.0,
    # Dips last seconds: two bad samples are enough to degrade, and they stay visible between dips.
    fail_for_s=2.0,
    clear_for_s=30.0,
    skip=no_gpus,
    action=_SET_LIMIT,
)
def gpu_power_limit(sources: Sources, profile: NodeProfile, limits: PowerLimits) -> Iterator[Finding]:
    """The limit that is enforced must be the provisioned one; the summary says which hand changed it."""
    yield from judge_readings(
        sources,
        profile,
        NvmlGroup.POWER,
        lambda slot, now: replace(_judge_limit(slot, now, profile, limits), measures=measured(now, MEASURES)),
    )


def _judge_limit(slot: GpuSlot, now: GpuReading, profile: NodeProfile, limits: PowerLimits) -> Finding:
    enforced_w = now.number("enforced_limit_w")
    provisioned_w = profile.gpus.power_limit_w
    want_w = now.number("default_limit_w") if provisioned_w is None else provisioned_w
    origin = "device default" if provisioned_w is None else "provisioned"
    if abs(enforced_w - want_w) <= limits.tolerance_w:
        return Finding(slot.subject, Verdict.PASS, f"{enforced_w:g} W ({origin})", enforced_w, want_w, "W")
    cause, action = _who(enforced_w, now.number("requested_limit_w"), want_w, limits)
    summary = f"enforced limit {enforced_w:g} W, {origin} {want_w:g} W: {cause}"
    return Finding(slot.subject, Verdict.FAIL, summary, enforced_w, want_w, "W", action)


def _who(enforced_w: float, requested_w: float, want_w: float, limits: PowerLimits) -> tuple[str, Action]:
    """Which hand set the limit: the driver's setting, or something outside that caps below it."""
    if enforced_w < requested_w - limits.tolerance_w:
        return f"capped from outside, the driver asks for {requested_w:g} W", _OUT_OF_BAND
    if abs(requested_w - want_w) > limits.tolerance_w:
        repair = f"Set {want_w:g} W with nvidia-smi -pl and enable nvidia-persistenced."
        return f"the driver was set to {requested_w:g} W", advice.play("gpu", repair)
    return f"although the driver asks for {requested_w:g} W", _OUT_OF_BAND


def _no_persistence(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or (
        None if profile.gpus.persistence else "the profile does not ask for persistence"
    )


@check(
    "gpu.persistence",
    title="Persistence mode",
    source="nvmlDeviceGetPersistenceMode",
    serving_class=ServingClass.INFO,
    period_s=30.0,
    fail_for_s=30.0,
    skip=_no_persistence,
    action=_PERSISTENCE,
)
def gpu_persistence(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The driver must keep its state with no client, or the power limit is lost when the engine stops."""

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        if now.boolean("persistence"):
            return Finding(slot.subject, Verdict.PASS, "persistence is on", True, True)
        summary = "persistence is off: power limit and driver state are lost when no engine runs"
        return Finding(slot.subject, Verdict.WARN, summary, False, True, action=_PERSISTENCE)

    yield from judge_readings(sources, profile, NvmlGroup.POWER, judge)
