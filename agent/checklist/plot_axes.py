"""Axes of a plot: where sensible ticks lie, and how numbers and times on them read (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
#: Steps of a time axis in seconds, each with its unit.
_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_MOST_TIME_TICKS = 7
_FLAT_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high` in the values' own unit; ticks are (value, text), `unit` is that of the texts."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    unit: str

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high one."""
        return (value - self.low) / (self.high - self.low)


def value_axis(low: float, high: float, unit: str, wanted: int = 5) -> Axis:
    """An axis that holds both values, begins and ends at a tick, and is never without height."""
    if high - low <= abs(high) * 1e-9:
        room = abs(high) * _FLAT_SHARE or 1.0
        low, high = low - room, high + room
    step = _nice_step((high - low) / max(1, wanted - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [index * step for index in range(first, last + 1)]
    return Axis(ticks[0], ticks[-1], tuple((tick, _figure(tick, step)) for tick in ticks), unit)


def time_axis(low_s: float, high_s: float) -> Axis:
    """An axis of seconds that reads in seconds, minutes or hours, whatever the span needs."""
    if high_s <= low_s:
        low_s, high_s = low_s - 0.5, high_s + 0.5
    span_s = high_s - low_s
    step_s = next((step for step in _TIME_STEPS_S if span_s / step <= _MOST_TIME_TICKS), None)
    if step_s is None:
        step_s = math.ceil(span_s / _MOST_TIME_TICKS / 86400) * 86400
    unit, unit_s = ("s", 1) if high_s <= 180 else ("min", 60) if high_s <= 3 * 3600 else ("h", 3600)
    first, last = math.ceil(low_s / step_s - 1e-9), math.floor(high_s / step_s + 1e-9)
    ticks = [index * step_s for index in range(first, last + 1)]
    texts = tuple((float(tick), _figure(tick / unit_s, step_s / unit_s)) for tick in ticks)
    return Axis(low_s, high_s, texts, unit)


def _nice_step(least: float) -> float:
    scale = 10.0 ** math.floor(math.log10(least))
    return next(step * scale for step in _STEPS if step * scale >= least * (1 - 1e-9))


def _figure(value: float, step: float) -> str:
    """As many decimals as the step has; large figures in thousands and up."""
    if abs(value) >= 1e6 or 0 < step < 1e-6:
        return f"{value:.4g}"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    if decimals == 0 and step % 1:
        decimals = 1
    elif step and abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1
    return f"{value + 0.0:.{decimals}f}".replace("-0.0", "0.0") if value else "0"
