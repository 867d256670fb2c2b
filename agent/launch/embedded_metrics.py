"""The embedded engine's metrics, under vLLM's names and labels. SIMULATED."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LABELS = ("engine", "model_name")


class EngineMetricsPage:
    """What GET /metrics shows.

    Like vLLM's it is filled by what the core produces, so it freezes with the core.
    """

    def __init__(self, model: str) -> None:
        """Begin with zeros."""
        self._registry = CollectorRegistry()
        labels = ("0", model)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"vllm:{name}", f"SIMULATED {text}", _LABELS, registry=self._registry).labels(
                *labels
            )

        def counter(name: str, text: str) -> Counter:
            return Counter(f"vllm:{name}", f"SIMULATED {text}", _LABELS, registry=self._registry).labels(
                *labels
            )

        self.running = gauge("num_requests_running", "requests in execution")
        self.waiting = gauge("num_requests_waiting", "requests waiting")
        self.kv_used = gauge("kv_cache_usage_perc", "cache usage")
        self.prompt = counter("prompt_tokens", "prompt tokens")
        self.generated = counter("generation_tokens", "generated tokens")
        self.prefix_queries = counter("prefix_cache_queries", "prompt tokens looked up in the prefix cache")
        self.prefix_hits = counter("prefix_cache_hits", "prompt tokens found there")
        self.preemptions = counter("num_preemptions", "requests set back")
        self.steps = Histogram(
            "vllm:iteration_tokens_total",
            "SIMULATED tokens of each engine step",
            _LABELS,
            registry=self._registry,
            buckets=(1, 8, 64, 512, 4096),
        ).labels(*labels)
        self._finished = Counter(
            "vllm:request_success",
            "SIMULATED finished requests",
            (*_LABELS, "finished_reason"),
            registry=self._registry,
        )
        self._labels = labels

    def prompted(self, tokens: int) -> None:
        """A prompt was read; the SIMULATED engine keeps no prefix, so none is found again."""
        self.prompt.inc(tokens)
        self.prefix_queries.inc(tokens)

    def token(self) -> None:
        """One token came out of one step."""
        self.generated.inc()
        self.steps.observe(1)

    def finished(self, reason: str) -> None:
        """A request ended."""
        self._finished.labels(*self._labels, reason).inc()

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)
