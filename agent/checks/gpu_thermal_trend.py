"""gpu.thermal_trend: will the GPU reach its slowdown temperature, at the power that it draws now?

NVML: nvmlDeviceGetTemperature and nvmlDeviceGetPowerUsage over some minutes, nvmlDeviceGetMarginTemperature.
Cooling that fails shows first as a temperature that rises while the power stays the same. A GPU that has just
been loaded rises too, ever slower: the rise from the middle third of the window to the last, against that
from the first to the middle, tells where such a curve ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from agent.checks import advice
from agent.checks.gpu_thermal import USE_TEMPERATURE, derived_c
from agent.checks.gpus import GpuSlot, judge_readings, no_gpus, plausible_c, read
from agent.checks.registry import Limits, check
from agent.errors import NotSupported
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup
from agent.sources.series import Series


class TrendLimits(Limits):
    """Tolerances of gpu.thermal_trend."""

    window_s: float = Field(300.0, description="Seconds over which the trend is judged", ge=60, le=3600)
    least_span_s: float = Field(
        240.0, description="Seconds of samples that are needed to see a trend", ge=30, le=3600
    )
    steady_percent: float = Field(
        10.0, description="Change of power, in percent, up to which it counts as steady", gt=0, le=50
    )
    least_rise_c: float = Field(
        2.0, description="Rise over the window, in C, that is not worth a look", ge=0, le=50
    )
    warn_within_s: float = Field(
        1200.0, description="A slowdown expected within so many seconds is a warning", ge=60, le=7200
    )
    fail_within_s: float = Field(
        180.0, description="A slowdown expected within so many seconds is a failure", ge=0, le=7200
    )
    use_temperature: bool = Field(
        False, description="Without a margin reading, judge slowdown limit minus temperature"
    )


@dataclass(frozen=True, slots=True)
class Trend:
    """What the window shows: rises between its thirds (of `third_s` each), and the power in each third."""

    early_c: float
    late_c: float
    third_s: float
    powers_w: tuple[float, float, float]

    def steady(self, percent: float) -> bool:
        """Whether the power stayed the same; a few W more or less are noise at idle."""
        low, high = min(self.powers_w), max(self.powers_w)
        return high - low <= max(high * percent / 100, 10.0)

    def seconds_until(self, gap_c: float, horizon_s: float) -> float | None:
        """When the temperature will have risen by `gap_c`, None when not within `horizon_s`.

        Each further third rises by the same ratio less than the one before, as an exponential approach does;
        a rise that does not slow down is continued as a straight line.
        """
        if self.late_c <= 0:
            return None
        ratio = min(1.0, self.late_c / self.early_c) if self.early_c > 0 else 1.0
        rise_c, at_s, step_c = 0.0, 0.0, self.late_c
        while at_s < horizon_s:
            step_c *= ratio
            if step_c <= 0.01:
                return None
            if rise_c + step_c >= gap_c:
                return at_s + self.third_s * (gap_c - rise_c) / step_c
            rise_c, at_s = rise_c + step_c, at_s + self.third_s
        return None


@check(
    "gpu.thermal_trend",
    title="Thermal trend",
    source="nvmlDeviceGetTemperature, nvmlDeviceGetPowerUsage over minutes; nvmlDeviceGetMarginTemperature",
    serving_class=ServingClass.SOFT,
    limits=TrendLimits,
    period_s=10.0,
    fail_for_s=20.0,
    clear_for_s=60.0,
    needs_interval_s=2.0,
    skip=no_gpus,
    action=advice.COOL,
    if_unreadable=USE_TEMPERATURE.format("gpu.thermal_trend"),
)
def gpu_thermal_trend(sources: Sources, profile: NodeProfile, limits: TrendLimits) -> Iterator[Finding]:
    """At steady power no GPU may be on its way to the slowdown temperature."""
    yield from judge_readings(
        sources,
        profile,
        NvmlGroup.THERMAL,
        lambda slot, now: _judge(slot, sources, now, profile.gpus.slowdown_c, limits),
        NvmlGroup.POWER,
    )


def _judge(
    slot: GpuSlot, sources: Sources, now: GpuReading, slowdown_c: int | None, limits: TrendLimits
) -> Finding:
    temperature_c = plausible_c(now, "temperature_c")
    draw_w = read(sources, slot, NvmlGroup.POWER).number("draw_w")
    gap_c = _gap_c(now, slowdown_c, limits)
    book, name = sources.series, f"gpu.thermal_trend/{now.uuid}"
    heat = book.record(f"{name}/temperature", temperature_c, now.mono_s, limits.window_s, keep=True)
    power = book.record(f"{name}/power", draw_w, now.mono_s, limits.window_s, keep=True)
    if heat.grown().span_s < limits.least_span_s:
        return _calm(slot, f"{temperature_c} C, watched for {heat.span_s:.0f} s so far", heat)
    return _judge_trend(slot, heat, power, gap_c, limits)


def _judge_trend(slot: GpuSlot, heat: Series, power: Series, gap_c: int, limits: TrendLimits) -> Finding:
    first_c, middle_c, last_c = heat.thirds()
    trend = Trend(middle_c - first_c, last_c - middle_c, heat.span_s / 3, power.thirds())
    rise = f"{first_c:.0f} to {last_c:.0f} C in {heat.span_s:.0f} s"
    if not trend.steady(limits.steady_percent):
        low, high = min(trend.powers_w), max(trend.powers_w)
        return _calm(slot, f"{rise} with power between {low:.0f} and {high:.0f} W: no trend", heat)
    if last_c - first_c < limits.least_rise_c:
        return _calm(slot, f"{rise} at {trend.powers_w[2]:.0f} W: steady", heat)
    left_s = trend.seconds_until(gap_c, limits.warn_within_s)
    if left_s is None:
        return _calm(slot, f"{rise} at {trend.powers_w[2]:.0f} W: no slowdown ahead", heat)
    fails = left_s <= limits.fail_within_s
    summary = (
        f"{rise} at a steady {trend.powers_w[2]:.0f} W, {gap_c} C left: "
        f"slows down in about {max(1, round(left_s / 60))} min"
    )
    field = "fail_within_s" if fails else "warn_within_s"
    return Finding(
        slot.subject, Verdict.FAIL if fails else Verdict.WARN, summary, round(left_s),
        f"> {getattr(limits, field):g}", "s", advice.COOL, basis=Basis.limit(field),
    )  # fmt: skip


def _calm(slot: GpuSlot, summary: str, heat: Series) -> Finding:
    return Finding(
        slot.subject, Verdict.PASS, summary, round(heat.values[-1] - heat.values[0], 1), None, "C",
        basis=Basis.limit("warn_within_s"),
    )  # fmt: skip


def _gap_c(now: GpuReading, slowdown_c: int | None, limits: TrendLimits) -> int:
    """Degrees left until the GPU slows down; gpu.thermal_margin tells of a margin of zero or less."""
    try:
        margin_c = plausible_c(now, "margin_c")
    except NotSupported:
        if slowdown_c is None and not limits.use_temperature:
            raise
        return max(1, derived_c(now, slowdown_c))
    return margin_c if margin_c > 0 else max(1, derived_c(now, slowdown_c))
