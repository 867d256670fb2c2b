"""Dips of power: short events found in samples, and the rhythm in which they come. Pure.

A lifetime counter of nanoseconds shows a dip that no poll saw; a value that falls and comes back is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.sources.series import Sample, Series

#: Dips count as periodic when no gap differs from the mean one by more than this share, or than one poll.
RHYTHM_TOLERANCE = 0.25
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Dip:
    """One event: it began between the poll at `start_s` and the next, and took `seconds` in all."""

    start_s: float
    end_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Several dips: how many, how long in all, and every how many seconds if they are periodic."""

    times: int
    seconds: float
    period_s: float | None

    def describe(self, span_s: float) -> str:
        """`0.6 s every 10 s, 7 times in 70 s`."""
        if self.times == 1:
            return f"{self.seconds:.1f} s once in {span_s:.0f} s"
        mean_s = self.seconds / self.times
        every = f" every {self.period_s:.0f} s" if self.period_s else ""
        return f"{mean_s:.1f} s{every}, {self.times} times in {span_s:.0f} s"


def growth_dips(series: Series, least_s: float) -> list[Dip]:
    """Dips of a lifetime counter in nanoseconds; one that went back was reset and says nothing there."""

    def seconds(before: Sample, after: Sample) -> float:
        return max(0.0, (after.value - before.value) / NS_PER_S)

    return [dip for dip in _joined(series, seconds) if dip.seconds >= least_s]


def flag_dips(series: Series) -> list[Dip]:
    """Dips of a flag (0 or 1) that polls saw set; each counts from the poll before."""
    return _joined(series, lambda before, after: after.mono_s - before.mono_s if after.value else 0.0)


def level_dips(series: Series, drop: float) -> list[Dip]:
    """Dips of a value that fell by more than `drop` below the highest of the window and came back."""
    floor = max(series.values) - drop
    found: list[Dip] = []
    fell_s: float | None = None
    for before, after in series.pairs():
        if before.value >= floor > after.value:
            fell_s = after.mono_s
        elif after.value >= floor > before.value and fell_s is not None:
            found.append(Dip(fell_s, after.mono_s, after.mono_s - fell_s))
            fell_s = None
    return found


def _joined(series: Series, seconds: Callable[[Sample, Sample], float]) -> list[Dip]:
    """Dips of neighbouring intervals are one."""
    found: list[Dip] = []
    for before, after in series.pairs():
        took_s = seconds(before, after)
        if took_s <= 0:
            continue
        if found and found[-1].end_s == before.mono_s:
            found[-1] = Dip(found[-1].start_s, after.mono_s, found[-1].seconds + took_s)
        else:
            found.append(Dip(before.mono_s, after.mono_s, took_s))
    return found


def rhythm(dips: Sequence[Dip], poll_s: float) -> Rhythm:
    """What several dips have in common; `poll_s` is how exactly their beginnings are known."""
    total_s = sum(dip.seconds for dip in dips)
    gaps_s = [later.start_s - earlier.start_s for earlier, later in pairwise(dips)]
    if len(gaps_s) < 2:
        return Rhythm(len(dips), total_s, None)
    mean_s = sum(gaps_s) / len(gaps_s)
    regular = all(abs(gap_s - mean_s) <= max(mean_s * RHYTHM_TOLERANCE, poll_s * 1.5) for gap_s in gaps_s)
    return Rhythm(len(dips), total_s, mean_s if regular else None)
