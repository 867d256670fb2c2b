"""The last ten minutes of what checks measure, for curves: a bounded ring in memory, gone with the agent.

Filled on the main loop when something is published; whoever shows it reads the published `History`, which
never changes. The journal keeps changes, Prometheus keeps curves; this is for the first look.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import SourceUnavailable
from agent.evaluate import is_stale
from agent.model import Snapshot
from agent.sources import Engines

if TYPE_CHECKING:
    from agent.publisher import Publication

SCHEMA = 1
PERIOD_S = 5.0
LENGTH_S = 600.0
SAMPLES = int(LENGTH_S / PERIOD_S)
#: More curves than these are not kept: 16 GPUs with six each, engines, loop and PDUs are under 150.
MOST_SERIES = 400
TOKENS = "engine_generation_tokens_per_second"

#: The measures (of metrics.py) that are kept, with their units.
UNITS = {
    "gpu_temperature_celsius": "C",
    "gpu_memory_temperature_celsius": "C",
    "gpu_tlimit_margin_celsius": "C",
    "gpu_power_draw_watts": "W",
    "gpu_utilization_percent": "%",
    "gpu_sm_clock_megahertz": "MHz",
    "coolant_inlet_celsius": "C",
    "coolant_outlet_celsius": "C",
    "coolant_flow_liters_per_minute": "l/min",
    "air_inlet_celsius": "C",
    "node_power_draw_watts": "W",
    TOKENS: "1/s",
}

#: Metric and subject: `("gpu_temperature_celsius", "gpu3")`.
SeriesKey = tuple[str, str]
Values = Mapping[SeriesKey, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """All curves at one moment; `values` is by `keys`, NaN where nothing fresh was known."""

    mono_s: float
    wall_s: float
    keys: tuple[SeriesKey, ...]
    values: array[float]

    def by_key(self) -> dict[SeriesKey, float]:
        """What was known."""
        pairs = zip(self.keys, self.values, strict=True)
        return {key: value for key, value in pairs if not math.isnan(value)}


@dataclass(frozen=True, slots=True)
class History:
    """The samples, oldest first. Times are monotonic seconds of the gates' clock, and the wall clock's."""

    samples: tuple[Sample, ...] = ()

    def series(self) -> dict[SeriesKey, list[float | None]]:
        """Every curve with one value a sample, None where nothing fresh was known."""
        curves: dict[SeriesKey, list[float | None]] = {}
        for at, sample in enumerate(self.samples):
            for key, value in sample.by_key().items():
                curves.setdefault(key, [None] * len(self.samples))[at] = value
        return curves

    def times_s(self) -> list[float]:
        """Seconds of each sample before the newest one: `[-10.0, -5.0, 0.0]`."""
        newest_s = self.samples[-1].mono_s if self.samples else 0.0
        return [sample.mono_s - newest_s for sample in self.samples]


NO_HISTORY = History()


@dataclass(frozen=True, slots=True)
class TokenCount:
    """An engine's lifetime count of generated tokens, and when its counters were last seen to move."""

    total: float
    moved_mono_s: float | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """A count at a sample, and from when the tokens after it are to be spread."""

    total: float
    from_mono_s: float


@dataclass(slots=True)
class HistoryRecorder:
    """Takes a sample when one is due. Belongs to the main loop."""

    history: History = NO_HISTORY
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def due(self, now_mono_s: float) -> bool:
        """Whether it is time for a sample."""
        samples = self.history.samples
        return not samples or now_mono_s - samples[-1].mono_s >= PERIOD_S

    def take(
        self, now_mono_s: float, wall_s: float, snapshot: Snapshot | None, tokens: Mapping[str, TokenCount]
    ) -> None:
        """Add a sample; `tokens` has the engines that answer and tell their count."""
        values = dict(_measured(snapshot, now_mono_s)) if snapshot else {}
        for engine in self._seen.keys() - tokens.keys():
            del self._seen[engine]  # it ended or went silent: the next count is a new baseline
        for engine, count in tokens.items():
            rate = self._rate(engine, count, now_mono_s)
            if rate is not None:
                values[TOKENS, f"engine:{engine}"] = rate
        self.history = _with(self.history, now_mono_s, wall_s, values)

    def _rate(self, engine: str, count: TokenCount, now_mono_s: float) -> float | None:
        """Tokens a second since the last sample; None for the first one and after a restart.

        The count is read at times of its own: what came since is spread over the time between those.
        """
        before = self._seen.get(engine)
        grew = before is not None and count.total > before.total
        ended_mono_s = count.moved_mono_s if grew and count.moved_mono_s is not None else now_mono_s
        self._seen[engine] = _Seen(count.total, ended_mono_s)
        if before is None or count.total < before.total or ended_mono_s <= before.from_mono_s:
            return None
        return (count.total - before.total) / (ended_mono_s - before.from_mono_s)


def token_counts(engines: Engines, names: Iterable[str]) -> dict[str, TokenCount]:
    """The counts of the engines that answer now."""
    counts: dict[str, TokenCount] = {}
    for name in names:
        with suppress(SourceUnavailable):  # not observed yet: it has no count
            seen = engines.observe(name)
            if seen.health_ok and seen.tokens_total is not None:
                counts[name] = TokenCount(seen.tokens_total, seen.tokens_moved_mono_s)
    return counts


def _measured(snapshot: Snapshot, now_mono_s: float) -> Iterator[tuple[SeriesKey, float]]:
    """What the newest results measured, less what is too old to count."""
    for (_, subject), result in snapshot.results.items():
        if not result.measures or is_stale(result, now_mono_s):
            continue
        for measure in result.measures:
            if measure.name in UNITS and math.isfinite(measure.value):
                yield (measure.name, subject), measure.value


def _with(history: History, now_mono_s: float, wall_s: float, values: Values) -> History:
    """The history with one sample more, without what is older than its length."""
    kept = [each for each in history.samples if now_mono_s - each.mono_s < LENGTH_S][-(SAMPLES - 1) :]
    last = kept[-1].keys if kept else ()
    keys = last if set(last) == set(values) else tuple(sorted(values)[:MOST_SERIES])
    sample = Sample(now_mono_s, wall_s, keys, array("d", (values.get(key, math.nan) for key in keys)))
    return History((*kept, sample))


def history_json(current: Publication | None) -> bytes:
    """What /history answers; without samples before anything has been published."""
    if current is None:
        return json.dumps(history_view(NO_HISTORY, "", False)).encode()
    facts = current.facts
    return json.dumps(history_view(current.history, facts.node, facts.simulated), allow_nan=False).encode()


def history_view(history: History, node: str, simulated: bool) -> dict[str, Any]:
    """The same before it is JSON; null where nothing fresh was known."""
    return {
        "schema": SCHEMA,
        "node": node,
        "simulated": simulated,
        "period_s": PERIOD_S,
        "length_s": LENGTH_S,
        "times_wall_s": [round(sample.wall_s, 1) for sample in history.samples],
        "series": [
            {"metric": metric, "subject": subject, "unit": UNITS[metric], "values": [*map(_short, values)]}
            for (metric, subject), values in sorted(history.series().items())
        ],
    }


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
