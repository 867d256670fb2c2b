"""engine.prefix_cache: has the prefix cache's hit rate fallen off a cliff?

vLLM: vllm:prefix_cache_hits_total over vllm:prefix_cache_queries_total; SGLang: sglang:cached_tokens_total
over sglang:prompt_tokens_total (tokens). A cliff means that prompts changed (a session id or a time stamp
ahead of the shared text), not that hardware broke: it is told, with the order of questions that finds the
cause, and gates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.engine_processes import judge_running, no_engine
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, NotSupported, ParseError, SourceError
from agent.model import Basis, Finding, Measure, Phase, ServingClass, Verdict
from agent.node_profile import Engine, NodeProfile
from agent.sources import EngineObservation, Sources

_PROMPTS = advice.person(
    "Prompts changed. Look in this order: 1. this hit rate against before, 2. cache room (KV cache use, "
    "preemptions), 3. recent releases of clients and templates, 4. the first differing prefix of two prompts."
)


class PrefixLimits(Limits):
    """Tolerances of engine.prefix_cache."""

    window_s: float = Field(600.0, description="Seconds that the hit rate of now is taken over", ge=60)
    baseline_s: float = Field(
        86400.0, description="Seconds before that which the usual hit rate is taken over", ge=600
    )
    min_tokens: int = Field(
        20000, description="Prompt tokens in the window and before it that make a rate worth judging", ge=1
    )
    drop_percent_points: float = Field(
        20.0, description="Fall of the hit rate below its usual value, in percent points", gt=0, le=100
    )
    floor_percent: float = Field(
        0.0, description="Hit rate in percent that is too low whatever it was before; 0 = none", ge=0, le=100
    )


@check(
    "engine.prefix_cache",
    title="Prefix cache hit rate",
    source="GET /metrics: prefix cache hits / queries (vLLM), cached / prompt tokens (SGLang)",
    serving_class=ServingClass.INFO,
    limits=PrefixLimits,
    phases=(Phase.SERVING,),
    period_s=30.0,
    fail_for_s=60.0,
    unknown_blocks_admission=False,
    needs_interval_s=5.0,
    skip=no_engine,
    action=_PROMPTS,
)
def engine_prefix_cache(sources: Sources, profile: NodeProfile, limits: PrefixLimits) -> Iterator[Finding]:
    """The hit rate of the last minutes may not fall far below the engine's own usual one."""

    def judge(subject: str, name: str, _engine: Engine, seen: EngineObservation) -> Finding:
        return _judge(subject, name, seen, sources, limits)

    yield from judge_running(sources, profile, judge, by_http=True)


def _judge(
    subject: str, name: str, seen: EngineObservation, sources: Sources, limits: PrefixLimits
) -> Finding:
    """Compare the window with what was before it."""
    values = _total(seen.prefix_queries_total, "queries"), _total(seen.prefix_hits_total, "hits")
    growth: dict[tuple[str, str], int] = {}
    first: SourceError | None = None
    spans = {"now": limits.window_s, "all": limits.window_s + limits.baseline_s}
    for kind, value in zip(("queries", "hits"), values, strict=True):
        for span, window_s in spans.items():
            counter = f"engine.prefix_cache/{name}/{kind}/{span}"
            try:
                delta = sources.counters.delta(counter, value, sources.clock.mono_s(), window_s)
            except BaselineOnly as cause:
                first = first or cause
            else:
                growth[kind, span] = delta.delta
    if first is not None:
        raise first
    now_tokens, now_hits = growth["queries", "now"], growth["hits", "now"]
    tokens, hits = growth["queries", "all"] - now_tokens, growth["hits", "all"] - now_hits
    if now_hits > now_tokens or hits > tokens:
        raise ParseError("the engine counts more prefix cache hits than queries")
    found = _verdict(subject, seen, (now_tokens, now_hits), (tokens, hits), limits)
    return replace(found, measures=_measures((now_tokens, now_hits), (tokens, hits), limits))


def _measures(now: tuple[int, int], before: tuple[int, int], limits: PrefixLimits) -> tuple[Measure, ...]:
    """The two rates, each where enough tokens make it one."""
    rates = {"engine_prefix_cache_hit_ratio": now, "engine_prefix_cache_usual_hit_ratio": before}
    return tuple(
        Measure(name, hits / tokens)
        for name, (tokens, hits) in rates.items()
        if tokens >= max(1, limits.min_tokens)
    )


def _verdict(
    subject: str,
    seen: EngineObservation,
    now: tuple[int, int],
    before: tuple[int, int],
    limits: PrefixLimits,
) -> Finding:
    if now[0] < limits.min_tokens:
        text = f"only {now[0]} prompt tokens in {limits.window_s / 60:g} min: no hit rate to judge"
        return Finding(subject, Verdict.PASS, text, None, None, "%", basis=Basis.limit("min_tokens"))
    rate = 100 * now[1] / now[0]
    usual = 100 * before[1] / before[0] if before[0] >= limits.min_tokens else None
    room = _room(seen)
    text = f"prefix cache hit rate {rate:.0f} % in {limits.window_s / 60:g} min"
    cliff = usual is not None and usual - rate >= limits.drop_percent_points
    if cliff or rate < limits.floor_percent:
        least = (usual or 0.0) - limits.drop_percent_points if cliff else limits.floor_percent
        was = f", usually {usual:.0f} %" if usual is not None else ""
        field = "drop_percent_points" if cliff else "floor_percent"
        summary = f"{text}{was}: prompts changed, no hardware fault ({room})"
        want = f">= {least:.0f}"
        return Finding(
            subject, Verdict.WARN, summary, round(rate, 1), want, "%", _PROMPTS, basis=Basis.limit(field)
        )
    was = f", usually {usual:.0f} %" if usual is not None else ", its usual rate is not known yet"
    basis = Basis.limit("drop_percent_points")
    return Finding(subject, Verdict.PASS, f"{text}{was}", round(rate, 1), None, "%", basis=basis)


def _total(value: float | None, what: str) -> int:
    """A lifetime count of tokens. Raises NotSupported, ParseError."""
    if value is None:
        raise NotSupported(f"the engine does not export the {what} of its prefix cache")
    if not 0 <= value < 2**63:
        raise ParseError(f"the {what} of its prefix cache read {value}, not a count")
    return int(value)


def _room(seen: EngineObservation) -> str:
    """The second question's answer: whether the cache has room."""
    used = seen.kv_cache_used_ratio
    parts = [f"KV cache {100 * used:.0f} % used" if used is not None else "KV cache use not known"]
    if seen.preemptions_total is not None:
        parts.append(f"{seen.preemptions_total:g} preemptions since its start")
    return ", ".join(parts)
