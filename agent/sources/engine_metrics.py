"""What is read of an engine's GET /metrics, by the names of its kind. Only the few lines needed are parsed.

vLLM: names as its 0.32.0 serves them. SGLang (only with --enable-metrics): prompt_tokens, cached_tokens and
generation_tokens grow when a request ends, so its life shows in realtime_tokens (each log interval) and in
the counts of the histograms of first and further tokens, which grow with each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import ParseError
from agent.launch_parts import EngineKind


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What the agent reads of an engine's metrics, summed over the engines of one API server.

    None = not exported.
    """

    iterations: float | None = None
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_used_ratio: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    preemptions: float | None = None
    first_token_sum_s: float | None = None
    first_token_count: float | None = None
    between_tokens_sum_s: float | None = None
    between_tokens_count: float | None = None
    #: Room of the KV cache in tokens, where the engine says it (SGLang).
    kv_cache_tokens: float | None = None

    @property
    def progress(self) -> tuple[float | None, ...]:
        """The values of which one moves whenever the engine finishes a step."""
        return (
            self.iterations,
            self.generation_tokens,
            self.prompt_tokens,
            self.first_token_count,
            self.between_tokens_count,
        )


_VLLM = {
    # A histogram with one sample for each engine step.
    "vllm:iteration_tokens_total_count": ("iterations",),
    "vllm:generation_tokens_total": ("generation_tokens",),
    "vllm:prompt_tokens_total": ("prompt_tokens",),
    "vllm:num_requests_running": ("requests_running",),
    "vllm:num_requests_waiting": ("requests_waiting",),
    "vllm:kv_cache_usage_perc": ("kv_cache_used_ratio",),
    "vllm:prefix_cache_queries_total": ("prefix_queries",),
    "vllm:prefix_cache_hits_total": ("prefix_hits",),
    "vllm:num_preemptions_total": ("preemptions",),
    "vllm:time_to_first_token_seconds_sum": ("first_token_sum_s",),
    "vllm:time_to_first_token_seconds_count": ("first_token_count",),
    "vllm:inter_token_latency_seconds_sum": ("between_tokens_sum_s",),
    "vllm:inter_token_latency_seconds_count": ("between_tokens_count",),
}
_SGLANG = {
    "sglang:realtime_tokens_total": ("iterations",),
    "sglang:generation_tokens_total": ("generation_tokens",),
    "sglang:prompt_tokens_total": ("prompt_tokens", "prefix_queries"),
    "sglang:cached_tokens_total": ("prefix_hits",),
    "sglang:num_running_reqs": ("requests_running",),
    "sglang:num_queue_reqs": ("requests_waiting",),
    "sglang:token_usage": ("kv_cache_used_ratio",),
    "sglang:num_retracted_requests_total": ("preemptions",),
    "sglang:time_to_first_token_seconds_sum": ("first_token_sum_s",),
    "sglang:time_to_first_token_seconds_count": ("first_token_count",),
    "sglang:inter_token_latency_seconds_sum": ("between_tokens_sum_s",),
    "sglang:inter_token_latency_seconds_count": ("between_tokens_count",),
    "sglang:max_total_num_tokens": ("kv_cache_tokens",),
}
#: Sample name -> fields, by kind of engine.
SAMPLES: Mapping[EngineKind, Mapping[str, tuple[str, ...]]] = {
    EngineKind.VLLM: _VLLM,
    EngineKind.SGLANG: _SGLANG,
}
#: Fields that hold of each engine or rank: the fullest, or the smallest, one counts.
_LARGEST = frozenset({"kv_cache_used_ratio"})
_SMALLEST = frozenset({"kv_cache_tokens"})


@dataclass(frozen=True, slots=True)
class EnginePaths:
    """Where an engine of a kind is asked whether it is healthy.

    SGLang's /health makes a token and takes a second, so it is asked only until it has answered 200 once;
    after that /v1/models shows that the server lives, and the canary, that the engine does.
    """

    ready: str
    alive: str


PATHS: Mapping[EngineKind, EnginePaths] = {
    EngineKind.VLLM: EnginePaths(ready="/health", alive="/health"),
    EngineKind.SGLANG: EnginePaths(ready="/health", alive="/v1/models"),
}


def parse_metrics(text: str, kind: EngineKind = EngineKind.VLLM) -> EngineMetrics:
    """Read the exposition; the few samples needed are picked out, for the whole has a thousand buckets."""
    names = SAMPLES[kind]
    found: dict[str, float] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in names:
            value = _value(line, name)
            for field in names[name] if value is not None else ():
                _add(found, field, value or 0.0)
    return EngineMetrics(**found)


def _add(found: dict[str, float], field: str, value: float) -> None:
    """Put the values of several engines together."""
    if field not in found:
        found[field] = value
    elif field in _LARGEST:
        found[field] = max(found[field], value)
    elif field in _SMALLEST:
        found[field] = min(found[field], value)
    else:
        found[field] += value


def _value(line: str, name: str) -> float | None:
    """The value of a sample line, `name{labels} value [time]`; None when it is no finite number."""
    rest = line[len(name) :]
    if rest.startswith("{"):
        _, brace, rest = rest.rpartition("}")
        if not brace:
            raise ParseError(f"/metrics cannot be read: {line[:80]!r}")
    parts = rest.split()
    try:
        value = float(parts[0])
    except (ValueError, IndexError) as cause:
        raise ParseError(f"/metrics cannot be read: {line[:80]!r}") from cause
    return value if math.isfinite(value) else None
