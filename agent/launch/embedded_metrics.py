"""The embedded engine's metrics, under vLLM's or SGLang's names and labels. SIMULATED."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent.launch_parts import EngineKind

_SECONDS = (0.001, 0.01, 0.1, 1, 10)


class EnginePage(Protocol):
    """What GET /metrics shows. Like a real one it is filled by what the core makes, so it freezes with it."""

    running: Gauge

    def prompted(self, tokens: int) -> None:
        """A prompt was read; the SIMULATED engine keeps no prefix, so none is found again."""

    def token(self) -> None:
        """One token came out of one step."""

    def first_token(self, seconds: float) -> None:
        """A request has got its first token."""

    def finished(self, reason: str, tokens: int) -> None:
        """A request ended."""

    def text(self) -> bytes:
        """The exposition."""


class _Page:
    """Makers of metrics with the labels of one engine."""

    def __init__(self, prefix: str, labels: dict[str, str]) -> None:
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self.labels = labels

    def gauge(self, name: str, text: str) -> Gauge:
        made = Gauge(f"{self._prefix}:{name}", f"SIMULATED {text}", self.labels, registry=self.registry)
        return made.labels(**self.labels)

    def counter(self, name: str, text: str, **more: str) -> Counter:
        labels = {**self.labels, **more}
        made = Counter(f"{self._prefix}:{name}", f"SIMULATED {text}", labels, registry=self.registry)
        return made.labels(**labels)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        made = Histogram(
            f"{self._prefix}:{name}",
            f"SIMULATED {text}",
            self.labels,
            registry=self.registry,
            buckets=buckets,
        )
        return made.labels(**self.labels)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


class EngineMetricsPage(_Page):
    """vLLM's names."""

    def __init__(self, model: str) -> None:
        """Begin with zeros."""
        super().__init__("vllm", {"engine": "0", "model_name": model})
        self.running = self.gauge("num_requests_running", "requests in execution")
        self.gauge("num_requests_waiting", "requests waiting")
        self.gauge("kv_cache_usage_perc", "cache usage")
        self.prompt = self.counter("prompt_tokens", "prompt tokens")
        self.generated = self.counter("generation_tokens", "generated tokens")
        self.queries = self.counter("prefix_cache_queries", "prompt tokens looked up in the prefix cache")
        self.counter("prefix_cache_hits", "prompt tokens found there")
        self.counter("num_preemptions", "requests set back")
        self.first = self.histogram("time_to_first_token_seconds", "time to the first token")
        self.histogram("inter_token_latency_seconds", "time between tokens")
        self.steps = self.histogram("iteration_tokens_total", "tokens of each engine step", (1, 8, 64, 512))
        self.done = Counter(
            "vllm:request_success",
            "SIMULATED finished requests",
            (*self.labels, "finished_reason"),
            registry=self.registry,
        )

    def prompted(self, tokens: int) -> None:
        """A prompt was read; the SIMULATED engine keeps no prefix, so none is found again."""
        self.prompt.inc(tokens)
        self.queries.inc(tokens)

    def token(self) -> None:
        """One token came out of one step."""
        self.generated.inc()
        self.steps.observe(1)

    def first_token(self, seconds: float) -> None:
        """A request has got its first token."""
        self.first.observe(seconds)

    def finished(self, reason: str, tokens: int) -> None:
        """A request ended; its tokens were counted as they came."""
        del tokens
        self.done.labels(*self.labels.values(), reason).inc()


class SglangMetricsPage(_Page):
    """SGLang's names. Tokens are counted when their request ends, and at once only by realtime_tokens."""

    def __init__(self, model: str) -> None:
        """Begin with zeros."""
        super().__init__("sglang", {"model_name": model, "engine_type": "unified", "tp_rank": "0"})
        self.running = self.gauge("num_running_reqs", "running requests")
        self.gauge("num_queue_reqs", "requests in the queue")
        self.gauge("token_usage", "token usage")
        self.gauge("gen_throughput", "tokens per second")
        self.gauge("cache_hit_rate", "prefix cache hit rate")
        self.gauge("max_total_num_tokens", "tokens that the KV cache holds").set(65536)
        self.prompt = self.counter("prompt_tokens", "prefill tokens")
        self.generated = self.counter("generation_tokens", "generated tokens")
        self.counter("cached_tokens", "prompt tokens found in the cache", cache_source="device")
        self.counter("num_retracted_requests", "requests set back")
        self.realtime = self.counter("realtime_tokens", "tokens as they come", mode="decode")
        self.first = self.histogram("time_to_first_token_seconds", "time to the first token")
        self.histogram("inter_token_latency_seconds", "time between tokens")

    def prompted(self, tokens: int) -> None:
        """A prompt was read to its end."""
        self.prompt.inc(tokens)

    def token(self) -> None:
        """One token came out of one step."""
        self.realtime.inc()

    def first_token(self, seconds: float) -> None:
        """A request has got its first token."""
        self.first.observe(seconds)

    def finished(self, reason: str, tokens: int) -> None:
        """A request ended."""
        del reason
        self.generated.inc(tokens)


def metrics_page(kind: EngineKind, model: str) -> EnginePage:
    """The page of one kind of engine."""
    return SglangMetricsPage(model) if kind is EngineKind.SGLANG else EngineMetricsPage(model)
