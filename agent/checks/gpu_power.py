"""gpu.power_limit, gpu.persistence: may the GPU draw what it was given, and does the driver keep its state?

NVML: nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimit (requested),
nvmlDeviceGetPowerManagementDefaultLimit, nvmlDeviceGetPowerManagementLimitConstraints,
nvmlDeviceGetPersistenceMode. The enforced limit can be below the requested one: then an out-of-band hand
lowered it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings, measured, no_gpus
from agent.checks.registry import Limits, check
from agent.errors import ParseError, SourceError
from agent.model import Action, Basis, Finding, ServingClass, Verdict
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


def no_power_limit(profile: NodeProfile) -> str | None:
    """Skip rule: a platform whose GPUs have no power limit that software sees."""
    return no_gpus(profile) or (
        None if profile.gpus.has_power_limit else "GPUs of this platform tell no power limit"
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
    skip=no_power_limit,
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
    if enforced_w <= 0:
        raise ParseError(f"the enforced power limit reads {enforced_w:g} W, which no GPU has")
    provisioned_w = profile.gpus.power_limit_w
    if provisioned_w is None:
        want_w, origin = now.number("default_limit_w"), "device default"
        basis = Basis.device("default power limit")
    else:
        want_w, origin, basis = provisioned_w, "provisioned", Basis.profile("gpus.power_limit_w")
    if abs(enforced_w - want_w) <= limits.tolerance_w:
        summary = f"{enforced_w:g} W ({origin})"
        return Finding(slot.subject, Verdict.PASS, summary, enforced_w, want_w, "W", basis=basis)
    cause, action = _impossible(now, want_w, limits) or _who(
        now, enforced_w, now.number("requested_limit_w"), want_w, limits
    )
    if provisioned_w is None:  # nobody said that the default is wanted
        meant = f"If {enforced_w:g} W is meant, write gpus.power_limit_w: {enforced_w:g} into the profile."
        action = replace(action, hint=f"{action.hint} {meant}")
    summary = f"enforced limit {enforced_w:g} W, {origin} {want_w:g} W: {cause}"
    return Finding(slot.subject, Verdict.FAIL, summary, enforced_w, want_w, "W", action, basis=basis)


def _impossible(now: GpuReading, want_w: float, limits: PowerLimits) -> tuple[str, Action] | None:
    """A limit that the device does not take: then the profile is wrong, not the GPU's setting."""
    with suppress(SourceError):  # an explanation only: the verdict stands without it
        least_w, most_w = now.number("min_limit_w"), now.number("max_limit_w")
        if not least_w - limits.tolerance_w <= want_w <= most_w + limits.tolerance_w:
            hint = f"Correct gpus.power_limit_w in the profile: this GPU takes {least_w:g} to {most_w:g} W."
            return f"the GPU takes {least_w:g} to {most_w:g} W only", advice.person(hint)
    return None


def _who(
    now: GpuReading, enforced_w: float, requested_w: float, want_w: float, limits: PowerLimits
) -> tuple[str, Action]:
    """Which hand set the limit: the driver's setting, or something outside that caps below it."""
    if enforced_w < requested_w - limits.tolerance_w:
        return f"capped from outside, the driver asks for {requested_w:g} W", _OUT_OF_BAND
    if abs(requested_w - want_w) > limits.tolerance_w:
        repair = f"Set {want_w:g} W with nvidia-smi -pl and enable nvidia-persistenced."
        return f"the driver was set to {requested_w:g} W{_lost(now, requested_w, limits)}", advice.play(
            "gpu", repair
        )
    return f"although the driver asks for {requested_w:g} W", _OUT_OF_BAND


def _lost(now: GpuReading, requested_w: float, limits: PowerLimits) -> str:
    """A note when the setting is the device's default: that is what a reload of the driver leaves behind."""
    with suppress(SourceError):
        if abs(requested_w - now.number("default_limit_w")) <= limits.tolerance_w:
            return ", the device's default: a driver reload loses the setting"
    return ""


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
    unknown_blocks_admission=False,  # it never fails either
    skip=_no_persistence,
    action=_PERSISTENCE,
)
def gpu_persistence(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The driver must keep its state with no client, or the power limit is lost when the engine stops."""
    basis = Basis.profile("gpus.persistence")

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        if now.boolean("persistence"):
            return Finding(slot.subject, Verdict.PASS, "persistence is on", True, True, basis=basis)
        summary = "persistence is off: power limit and driver state are lost when no engine runs"
        return Finding(slot.subject, Verdict.WARN, summary, False, True, action=_PERSISTENCE, basis=basis)

    yield from judge_readings(sources, profile, NvmlGroup.POWER, judge)
