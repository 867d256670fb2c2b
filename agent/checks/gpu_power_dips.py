"""gpu.power_dips: does power fall away for moments that no poll of the event reasons sees?

NVML: lifetime counters in nanoseconds, field 271 CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN and field 270
CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, and nvmlDeviceGetEnforcedPowerLimit over time. The software power cap
(field 74) is normal life of a busy GPU and is not looked at. A rack at its power alarm brakes its GPUs every
few seconds while their utilisation reads 100 %: the rhythm is kept as evidence for the people of the PDU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from pydantic import Field

from agent.checks import advice
from agent.checks.dips import Dip, flag_dips, growth_dips, level_dips, rhythm
from agent.checks.gpu_throttle import HW_THERMAL, POWER_BRAKE
from agent.checks.gpus import GpuSlot, count_of, judge_readings, mask_of, no_gpus, read
from agent.checks.registry import Limits, check
from agent.errors import NotSupported, SourceError
from agent.model import Action, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup
from agent.sources.series import Series

#: Counter, the event reason that shows the same while it lasts, words, what to do.
Counter = tuple[str, int, str, Action]
COUNTERS: tuple[Counter, ...] = (
    ("hw_brake_ns", POWER_BRAKE, "power brake", advice.RACK_POWER),
    ("hw_thermal_ns", HW_THERMAL, "hardware thermal slowdown", advice.COOL),
)
_NONE = Basis.standard("no dip of power")


class DipLimits(Limits):
    """Tolerances of gpu.power_dips."""

    window_s: float = Field(120.0, description="Seconds over which dips are counted", ge=20, le=3600)
    least_s: float = Field(
        0.02, description="Seconds of slowdown in one dip that are not worth a word", ge=0, le=10
    )
    drop_w: float = Field(5.0, description="Fall of the enforced limit, in W, that is not worth a word", ge=0)
    max_dips: int = Field(2, description="Dips in the window that are still a warning", ge=0)
    max_s: float = Field(2.0, description="Seconds of dips in the window that are still a warning", ge=0)
    use_polls: bool = Field(
        False, description="Without lifetime counters, judge what the polls of the event reasons saw"
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """The dips of one kind in the window."""

    words: str
    dips: list[Dip]
    action: Action


@check(
    "gpu.power_dips",
    title="Power dips between polls",
    source="fields 270, 271 (lifetime ns), nvmlDeviceGetEnforcedPowerLimit and PowerUsage over time",
    # A PDU brakes a whole row at once: that must degrade nodes and not close them all.
    serving_class=ServingClass.SOFT,
    limits=DipLimits,
    # The counters miss nothing between two looks; the rhythm of a rack (ten seconds) still shows.
    period_s=4.0,
    fail_for_s=4.0,
    clear_for_s=10.0,
    needs_interval_s=1.0,
    # Drivers before 570 have no such counters; gpu.throttle reads the same reasons at each poll.
    unknown_blocks_admission=False,
    skip=no_gpus,
    action=advice.RACK_POWER,
    if_unreadable=(
        "Drivers before 570 do not tell it: `limits: {gpu.power_dips: {use_polls: true}}` judges by polls."
    ),
)
def gpu_power_dips(sources: Sources, profile: NodeProfile, limits: DipLimits) -> Iterator[Finding]:
    """No power brake, hardware slowdown or fall of the power limit within the last minutes, however short."""
    yield from judge_readings(
        sources,
        profile,
        NvmlGroup.POWER,
        lambda slot, now: _judge(slot, sources, profile, now, limits),
        NvmlGroup.SLOWDOWNS,
    )


def _judge(
    slot: GpuSlot, sources: Sources, profile: NodeProfile, now: GpuReading, limits: DipLimits
) -> Finding:
    # Everything is sampled before anything is judged, so that all of it begins at the same moment.
    # A platform that tells no power limit has no brake counters either: there polls must do.
    polls = limits.use_polls or not profile.gpus.has_power_limit
    times = read(sources, slot, NvmlGroup.SLOWDOWNS)
    histories = [_slowdowns(sources, now, times, at, limits, polls) for at in COUNTERS]
    kinds = []
    if profile.gpus.has_power_limit:
        limit = _record(sources, now, "limit", now.number("enforced_limit_w"), limits)
        kinds.append(Kind(_fall(limit), level_dips(limit, limits.drop_w), advice.RACK_POWER))
    draw = _draw(sources, now, limits)
    span_s = histories[0][0].grown().span_s
    for (series, by_polls), (_, _, words, action) in zip(histories, COUNTERS, strict=True):
        dips = flag_dips(series) if by_polls else growth_dips(series, limits.least_s)
        kinds.append(Kind(words, dips, action))
    seen = [kind for kind in kinds if kind.dips]
    if not seen:
        note = " by polls alone" if any(by_polls for _, by_polls in histories) else ""
        text = f"no dip of power in {span_s:.0f} s{note}"
        return Finding(slot.subject, Verdict.PASS, text, 0, 0, "dips", basis=_NONE)
    return _found(slot, seen, histories[0][0], draw, limits)


def _found(slot: GpuSlot, seen: list[Kind], any_series: Series, draw: str, limits: DipLimits) -> Finding:
    """A few short dips are a warning; many or long ones are a failure."""
    span_s = any_series.span_s
    poll_s = span_s / max(1, len(any_series.samples) - 1)
    beats = [rhythm(kind.dips, poll_s) for kind in seen]
    parts = [f"{kind.words} {beat.describe(span_s)}" for kind, beat in zip(seen, beats, strict=True)]
    too_many = any(beat.times > limits.max_dips for beat in beats)
    too_long = any(beat.seconds > limits.max_s for beat in beats)
    times, seconds = max(beat.times for beat in beats), max(beat.seconds for beat in beats)
    summary, action = "; ".join(parts) + draw, seen[0].action
    if too_many:
        return Finding(
            slot.subject, Verdict.FAIL, summary, times, f"<= {limits.max_dips}", "dips", action,
            basis=Basis.limit("max_dips"),
        )  # fmt: skip
    if too_long:
        return Finding(
            slot.subject, Verdict.FAIL, summary, round(seconds, 1), f"<= {limits.max_s:g}", "s", action,
            basis=Basis.limit("max_s"),
        )  # fmt: skip
    return Finding(slot.subject, Verdict.WARN, summary, times, 0, "dips", action, basis=_NONE)


def _slowdowns(
    sources: Sources, now: GpuReading, times: GpuReading, counter: Counter, limits: DipLimits, polls: bool
) -> tuple[Series, bool]:
    """The history of one slowdown, and whether only polls of the event reasons tell it."""
    field, bit, _, _ = counter
    try:
        return _record(sources, now, field, count_of(times, field), limits), False
    except NotSupported:
        if not polls:
            raise
        asserted = bool(mask_of(now, "event_reasons") & bit)
        return _record(sources, now, f"{field}/polls", float(asserted), limits), True


def _record(sources: Sources, now: GpuReading, what: str, value: float, limits: DipLimits) -> Series:
    return sources.series.record(f"gpu.power_dips/{now.uuid}/{what}", value, now.mono_s, limits.window_s)


def _fall(limit: Series) -> str:
    return f"enforced limit {max(limit.values):g} -> {min(limit.values):g} W for"


def _draw(sources: Sources, now: GpuReading, limits: DipLimits) -> str:
    """Evidence beside the verdict: between what the power draw went up and down."""
    with suppress(SourceError):
        values = _record(sources, now, "draw", now.number("draw_w"), limits).values
        return f"; draw {min(values):.0f} to {max(values):.0f} W"
    return ""
