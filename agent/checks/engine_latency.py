"""engine.latency: has the engine become slower than it was after its warm-up?

The canary is the same short request each time, so its latency is compared best. Time to the first token and
between tokens (histograms of GET /metrics) are those of the clients' requests and change with them: all is
told, against the engine's own usual values, and gates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from pydantic import Field

from agent.checks import advice
from agent.checks.engine_processes import judge_running, no_engine
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, ParseError, SourceUnavailable
from agent.model import Basis, Finding, Measure, Phase, ServingClass, Verdict
from agent.node_profile import Engine, NodeProfile
from agent.sources import EngineObservation, Sources
from agent.sources.counters import CounterDelta
from agent.sources.series import Series

_SLOWER = advice.person(
    "Look at clocks and throttling (gpu.throttle, gpu.clocks), at the load (engine.pressure), at the CPUs "
    "(engine.cpu), then at what clients send: longer prompts, another model setting, a colder prefix cache."
)
#: Samples of a latency that make a median worth comparing.
LEAST_SAMPLES = 3
#: Requests or tokens in the window and before it that make a mean worth comparing.
LEAST_COUNT = 50
_MICRO = 1e6
_FIRST, _BETWEEN, _CANARY = "time to the first token", "time between tokens", "canary"
#: Label of each latency in /metrics.
_KINDS = {_CANARY: "canary", _FIRST: "first_token", _BETWEEN: "between_tokens"}


class LatencyLimits(Limits):
    """Tolerances of engine.latency."""

    window_s: float = Field(600.0, description="Seconds that the latency of now is taken over", ge=60)
    baseline_s: float = Field(
        86400.0, description="Seconds before that which the usual latency is taken over", ge=600
    )
    factor: float = Field(2.0, description="How many times the usual latency is told", gt=1)
    least_s: float = Field(0.05, description="Seconds more than usual below which nothing is told", ge=0)


@dataclass(frozen=True, slots=True)
class _Latency:
    """One latency now and usually; `usual_s` None = not known yet."""

    what: str
    now_s: float
    usual_s: float | None

    def drifted(self, limits: LatencyLimits) -> bool:
        """Whether it is so much longer than usual that it is told."""
        if self.usual_s is None:
            return False
        return self.now_s >= limits.factor * self.usual_s and self.now_s - self.usual_s >= limits.least_s

    def words(self) -> str:
        """For people."""
        usually = "not known yet" if self.usual_s is None else f"{self.usual_s:.3f} s"
        return f"{self.what} {self.now_s:.3f} s, usually {usually}"


@check(
    "engine.latency",
    title="Latency drift",
    source="latency of canaries; GET /metrics: time to the first token, time between tokens",
    serving_class=ServingClass.INFO,
    limits=LatencyLimits,
    phases=(Phase.SERVING,),
    period_s=30.0,
    fail_for_s=60.0,
    unknown_blocks_admission=False,
    skip=no_engine,
    action=_SLOWER,
)
def engine_latency(sources: Sources, profile: NodeProfile, limits: LatencyLimits) -> Iterator[Finding]:
    """No latency of an engine may become a multiple of what is usual for it."""

    def judge(subject: str, name: str, _engine: Engine, seen: EngineObservation) -> Finding:
        # An engine that was started anew begins a history of its own.
        life = f"{name}/{seen.pids[0] if seen.pids else ''}"
        found = _latencies(life, seen, sources, limits)
        return replace(_judge(subject, found, limits), measures=_measures(found))

    yield from judge_running(sources, profile, judge, by_http=True)


def _measures(found: list[_Latency]) -> tuple[Measure, ...]:
    """Each latency, and what is usual where that is known."""
    now = [Measure("engine_latency_seconds", one.now_s, _KINDS[one.what]) for one in found]
    usual = [
        Measure("engine_usual_latency_seconds", one.usual_s, _KINDS[one.what])
        for one in found
        if one.usual_s is not None
    ]
    return (*now, *usual)


def _judge(subject: str, found: list[_Latency], limits: LatencyLimits) -> Finding:
    basis = Basis.limit("factor")
    for latency in found:
        if latency.drifted(limits) and latency.usual_s is not None:
            want = f"< {limits.factor * latency.usual_s:.3f}"
            return Finding(
                subject, Verdict.WARN, f"slower than usual: {latency.words()}", round(latency.now_s, 3), want,
                "s", _SLOWER, basis=basis,
            )  # fmt: skip
    words = "; ".join(latency.words() for latency in found)
    return Finding(subject, Verdict.PASS, words, round(found[0].now_s, 3), None, "s", basis=basis)


def _latencies(life: str, seen: EngineObservation, sources: Sources, limits: LatencyLimits) -> list[_Latency]:
    """The canary's first, then those of the clients' requests as far as they are exported."""
    canary = seen.answered
    if canary is None:
        raise SourceUnavailable("no canary has been answered yet")
    if not 0 <= canary.latency_s < 86400:
        raise ParseError(f"the canary took {canary.latency_s} s, which cannot be")
    series = sources.series.record(
        f"engine.latency/{life}/canary",
        canary.latency_s,
        canary.ended_mono_s,
        limits.window_s + limits.baseline_s,
    )
    found = [_of_series(_CANARY, series, sources.clock.mono_s() - limits.window_s)]
    sums = {
        _FIRST: (seen.first_token_sum_s, seen.first_token_count),
        _BETWEEN: (seen.between_tokens_sum_s, seen.between_tokens_count),
    }
    for what, (total_s, count) in sums.items():
        if total_s is not None and count is not None:
            mean = _of_sums(f"engine.latency/{life}/{what}", what, (total_s, count), sources, limits)
            found += [mean] if mean is not None else []
    return found


def _of_series(what: str, series: Series, window_start_mono_s: float) -> _Latency:
    """Medians of the samples within the window and before it."""
    now = [sample.value for sample in series.samples if sample.mono_s >= window_start_mono_s]
    before = [sample.value for sample in series.samples if sample.mono_s < window_start_mono_s]
    usual_s = median(before) if len(before) >= LEAST_SAMPLES and len(now) >= LEAST_SAMPLES else None
    return _Latency(what, median(now) if now else series.values[-1], usual_s)


def _of_sums(
    counter: str, what: str, values: tuple[float, float], sources: Sources, limits: LatencyLimits
) -> _Latency | None:
    """Means within the window and before it; None while too little has been counted."""
    if not all(0 <= value < 2**52 for value in values):
        raise ParseError(f"the engine's {what} reads {values[0]} s for {values[1]}, which cannot be")
    parts = {"sum": int(values[0] * _MICRO), "count": int(values[1])}
    window = _grown(f"{counter}/now", parts, sources, limits.window_s)
    whole = _grown(f"{counter}/all", parts, sources, limits.window_s + limits.baseline_s)
    if window is None or whole is None:  # a first sample; the canary is judged meanwhile
        return None
    count, total = window["count"].delta, window["sum"].delta
    if count < LEAST_COUNT:
        return None
    before, before_total = whole["count"].delta - count, whole["sum"].delta - total
    usual_s = before_total / before / _MICRO if before >= LEAST_COUNT else None
    return _Latency(what, total / count / _MICRO, usual_s)


def _grown(
    prefix: str, parts: dict[str, int], sources: Sources, window_s: float
) -> dict[str, CounterDelta] | None:
    """Growth of sum and count within a window; None at their first sample."""
    try:
        return sources.counters.deltas(prefix, parts, sources.clock.mono_s(), window_s)
    except BaselineOnly:
        return None
