"""engine.pressure: does more come in than the engine can do?

vLLM: vllm:num_requests_waiting, num_preemptions_total, kv_cache_usage_perc; SGLang: sglang:num_queue_reqs,
num_retracted_requests_total, token_usage. A load balancer should send less, or there should be more replicas:
nothing is broken, so this only tells and gates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.engine_processes import judge_running, no_engine
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, NotSupported, ParseError
from agent.model import Basis, Finding, Measure, Phase, ServingClass, Verdict
from agent.node_profile import Engine, NodeProfile
from agent.sources import EngineObservation, Sources

_LOAD = advice.person(
    "Send less here or add replicas; long prompts hold short ones up, and a full KV cache makes the engine "
    "do work twice: take fewer requests at once, or have clients send less."
)


class PressureLimits(Limits):
    """Tolerances of engine.pressure."""

    window_s: float = Field(
        300.0, description="Seconds over which queue and cache are judged", ge=30, le=3600
    )
    min_waiting: int = Field(8, description="Waiting requests from which a growing queue is told", ge=1)
    preemptions_per_min: float = Field(
        10.0, description="Preempted requests per minute from which they are told", gt=0
    )
    cache_percent: float = Field(
        98.0, description="KV cache use in percent that is told when it lasts for the window", gt=0, le=100
    )


@check(
    "engine.pressure",
    title="Queue, preemptions and cache room",
    source="GET /metrics: requests waiting, preemptions, KV cache use",
    serving_class=ServingClass.INFO,
    limits=PressureLimits,
    phases=(Phase.SERVING,),
    period_s=15.0,
    fail_for_s=30.0,
    unknown_blocks_admission=False,
    needs_interval_s=5.0,
    skip=no_engine,
    action=_LOAD,
)
def engine_pressure(sources: Sources, profile: NodeProfile, limits: PressureLimits) -> Iterator[Finding]:
    """An engine's queue must not grow steadily, its cache not stay full, its requests not be preempted."""

    def judge(subject: str, name: str, _engine: Engine, seen: EngineObservation) -> Finding:
        return replace(_judge(subject, name, seen, sources, limits), measures=_measures(seen))

    yield from judge_running(sources, profile, judge, by_http=True)


def _measures(seen: EngineObservation) -> tuple[Measure, ...]:
    """What the engine exports of its work, as it is read."""
    values = {
        "engine_generation_tokens_total": seen.tokens_total,
        "engine_requests_running": seen.requests_running,
        "engine_requests_waiting": seen.requests_waiting,
        "engine_preemptions_total": seen.preemptions_total,
        "engine_kv_cache_used_ratio": seen.kv_cache_used_ratio,
    }
    return tuple(Measure(name, value) for name, value in values.items() if value is not None)


def _judge(
    subject: str, name: str, seen: EngineObservation, sources: Sources, limits: PressureLimits
) -> Finding:
    """The first of the three that is too much; all that is known in the summary."""
    signals = (seen.requests_waiting, seen.preemptions_total, seen.kv_cache_used_ratio)
    if all(value is None for value in signals):
        raise NotSupported("the engine exports neither its queue nor its preemptions nor its cache use")
    # All are sampled before anything is judged, or a first sample of one would cost the others theirs.
    preempted = _preemptions(name, seen, sources, limits)
    queue, growing = _queue(name, seen, sources, limits)
    cache, full = _cache(name, seen, sources, limits)
    if isinstance(preempted, BaselineOnly):
        raise preempted
    rate = [] if preempted is None else [f"{preempted:.1f} preemptions per minute"]
    words = ", ".join([*queue, *rate, *cache])
    if growing:
        return _told(subject, f"the queue grows: {words}", seen.requests_waiting, "min_waiting", limits)
    if preempted is not None and preempted >= limits.preemptions_per_min:
        return _told(subject, f"requests are preempted: {words}", preempted, "preemptions_per_min", limits)
    if full:
        used = 100 * (seen.kv_cache_used_ratio or 0.0)
        return _told(subject, f"the KV cache stays full: {words}", used, "cache_percent", limits)
    basis = Basis.limit("preemptions_per_min")
    return Finding(subject, Verdict.PASS, words, None, None, "", basis=basis)


def _told(subject: str, summary: str, observed: float | None, field: str, limits: PressureLimits) -> Finding:
    want = f"< {getattr(limits, field):g}"
    number = None if observed is None else round(observed, 1)
    return Finding(subject, Verdict.WARN, summary, number, want, "", _LOAD, basis=Basis.limit(field))


def _preemptions(
    name: str, seen: EngineObservation, sources: Sources, limits: PressureLimits
) -> float | BaselineOnly | None:
    """Preemptions per minute; the cause where this is their first sample, None where they are not told."""
    value = seen.preemptions_total
    if value is None:
        return None
    if not 0 <= value < 2**63:
        raise ParseError(f"the engine's preemptions read {value}, not a count")
    try:
        grown = sources.counters.delta(
            f"engine.pressure/{name}/preemptions", int(value), sources.clock.mono_s(), limits.window_s
        )
    except BaselineOnly as first:
        return first
    return 60 * grown.delta / max(grown.seconds, 60.0)  # a few in the first seconds are no rate


def _queue(
    name: str, seen: EngineObservation, sources: Sources, limits: PressureLimits
) -> tuple[list[str], bool]:
    """The queue in words, and whether it grows."""
    waiting = seen.requests_waiting
    if waiting is None:
        return [], False
    if not 0 <= waiting < 2**63:
        raise ParseError(f"the engine's waiting requests read {waiting}, not a count")
    history = sources.series.record(
        f"engine.pressure/{name}/waiting", waiting, sources.clock.mono_s(), limits.window_s
    )
    first, middle, last = history.thirds()
    lasting = history.span_s >= limits.window_s / 2
    return [f"{waiting:g} waiting"], lasting and waiting >= limits.min_waiting and first < middle < last


def _cache(
    name: str, seen: EngineObservation, sources: Sources, limits: PressureLimits
) -> tuple[list[str], bool]:
    """The use of the KV cache in words, and whether it has been full for the window."""
    ratio = seen.kv_cache_used_ratio
    if ratio is None:
        return [], False
    if not 0 <= ratio <= 1.01:
        raise ParseError(f"the engine's KV cache use reads {ratio}, not a share")
    history = sources.series.record(
        f"engine.pressure/{name}/cache", 100 * ratio, sources.clock.mono_s(), limits.window_s
    )
    lasting = history.span_s >= limits.window_s / 2
    return [f"KV cache {100 * ratio:.0f} % used"], lasting and min(history.values) >= limits.cache_percent
