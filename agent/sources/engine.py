"""The engine over HTTP (health, metrics, models, completions), and the board its observations go to.

Every read has one deadline for connect, send and receive together, and a bound on the answer's size.
Connections are not kept alive: an idle one that the engine closes a moment before it is used again would
read as a fault.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from agent.errors import ParseError, SourceTimeout, SourceUnavailable
from agent.sources import EngineObservation, Engines
from agent.sources.engine_http import BadRequest, HttpError, TooLong, exchange

MAX_ANSWER_BYTES = 8 * 1024 * 1024
ERROR_EXCERPT_CHARS = 160
#: Before the second try of a request whose connection was refused or broke.
RETRY_PAUSE_S = 0.1


class EngineBoard(Engines):
    """The newest observation of each engine: monitors publish on the event loop, checks read from any thread.

    `on_event("engine")` is called when the phase, the health or the canary's verdict of an engine changes.
    """

    def __init__(self, on_event: Callable[[str], None] | None = None) -> None:
        """Start with nothing observed."""
        self.on_event = on_event
        self._observations: dict[str, EngineObservation] = {}

    def publish(self, name: str, observation: EngineObservation) -> None:
        """Replace the observation of one engine."""
        before = self._observations.get(name)
        self._observations[name] = observation
        if self.on_event is not None and (before is None or _gist(before) != _gist(observation)):
            self.on_event("engine")

    def observe(self, engine: str) -> EngineObservation:
        """The newest observation."""
        observation = self._observations.get(engine)
        if observation is None:
            raise SourceUnavailable(f"engine {engine} has not been observed yet")
        return observation


def _gist(observation: EngineObservation) -> tuple[object, ...]:
    """The parts whose change is an event."""
    canary = observation.canary
    return observation.status.phase, observation.health_ok, canary.verdict if canary else None


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What the agent reads of vLLM's metrics, summed over the engines of one API server.

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

    @property
    def progress(self) -> tuple[float | None, float | None, float | None]:
        """The values of which one moves whenever the engine finishes a step."""
        return self.iterations, self.generation_tokens, self.prompt_tokens


#: Sample name -> field. `iteration_tokens_total` is a histogram with one sample for each engine step.
SAMPLES = {
    "vllm:iteration_tokens_total_count": "iterations",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:num_requests_running": "requests_running",
    "vllm:num_requests_waiting": "requests_waiting",
    "vllm:kv_cache_usage_perc": "kv_cache_used_ratio",
    "vllm:prefix_cache_queries_total": "prefix_queries",
    "vllm:prefix_cache_hits_total": "prefix_hits",
    "vllm:num_preemptions_total": "preemptions",
}


def parse_metrics(text: str) -> EngineMetrics:
    """Read the exposition; only the few samples needed are parsed, for the whole has a thousand buckets."""
    wanted = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] in SAMPLES]
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
            for sample in family.samples:
                field = SAMPLES.get(sample.name)
                if field is None or sample.value != sample.value:  # NaN differs from itself
                    continue
                if field == "kv_cache_used_ratio":  # a ratio of each engine: the fullest one counts
                    sums[field] = max(sums.get(field, 0.0), sample.value)
                else:
                    sums[field] = sums.get(field, 0.0) + sample.value
    except (ValueError, KeyError, IndexError) as cause:
        raise ParseError(f"/metrics cannot be read: {cause}") from cause
    return EngineMetrics(**sums)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A greedy completion; `model` is the name that the engine serves it under."""

    model: str
    prompt: str
    max_tokens: int

    def body(self) -> dict[str, Any]:
        """The JSON of POST /v1/completions."""
        return {
            "model": self.model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": False,
        }


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back of a completion; `error` is an excerpt of the answer when it is not one."""

    http_status: int
    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int | None = None
    error: str = ""


def parse_completion(status: int, body: bytes) -> Completion:
    """Read an answer of /v1/completions without trusting any part of it."""
    excerpt = " ".join(body[: ERROR_EXCERPT_CHARS * 4].decode("utf-8", "replace").split())[
        :ERROR_EXCERPT_CHARS
    ]
    if status != 200:
        return Completion(status, error=excerpt)
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        text, reason, tokens = choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return Completion(status, error=f"not a completion: {excerpt}")
    if not isinstance(text, str) or isinstance(tokens, bool) or not isinstance(tokens, int):
        return Completion(status, error=f"not a completion: {excerpt}")
    return Completion(status, text, reason if isinstance(reason, str) else None, tokens)


def base_url(host: str, port: int) -> str:
    """Where to reach an engine that listens at host: a wildcard address is reached over loopback."""
    reachable = reachable_host(host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def reachable_host(host: str) -> str:
    """The address to connect to for an engine that listens at host."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104


async def something_listens(host: str, port: int, deadline_s: float = 1.0) -> bool:
    """Whether a connection to the engine's port is accepted, or hangs; refused is what a free port does."""
    try:
        async with asyncio.timeout(deadline_s):
            _, writer = await asyncio.open_connection(reachable_host(host), port)
    except TimeoutError:
        return True
    except OSError:
        return False
    writer.close()
    return True


class EngineClient:
    """Bounded reads of one engine's HTTP interface; proxies, redirects and cookies are not followed."""

    def __init__(self, host: str, port: int, *, api_key: str | None = None) -> None:
        """Prepare; nothing is connected yet."""
        self._address = (reachable_host(host), port)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def close(self) -> None:
        """Nothing is kept open between reads."""

    async def health(self, deadline_s: float) -> bool:
        """Whether GET /health answers 200; raises SourceTimeout or SourceUnavailable when nothing answers."""
        status, _ = await self._fetch("GET", "/health", deadline_s)
        return status == 200

    async def metrics(self, deadline_s: float) -> EngineMetrics:
        """GET /metrics."""
        status, body = await self._fetch("GET", "/metrics", deadline_s)
        if status != 200:
            raise SourceUnavailable(f"/metrics answers HTTP {status}")
        return parse_metrics(body.decode("utf-8", "replace"))

    async def models(self, deadline_s: float) -> list[str]:
        """The names that GET /v1/models lists."""
        status, body = await self._fetch("GET", "/v1/models", deadline_s)
        if status != 200:
            raise SourceUnavailable(f"/v1/models answers HTTP {status}")
        try:
            names = [entry["id"] for entry in json.loads(body)["data"]]
        except (ValueError, KeyError, TypeError, RecursionError) as cause:
            raise ParseError("/v1/models is not a list of models") from cause
        return [name for name in names if isinstance(name, str)]

    async def complete(self, request: CompletionRequest, deadline_s: float) -> Completion:
        """POST /v1/completions; the request is dropped at its deadline, which makes the engine abort it."""
        return parse_completion(*await self._fetch("POST", "/v1/completions", deadline_s, request.body()))

    async def _fetch(
        self, method: str, path: str, deadline_s: float, sent: dict[str, Any] | None = None
    ) -> tuple[int, bytes]:
        """One request: status and body. One broken connection is no evidence, so it is tried twice."""
        try:
            async with asyncio.timeout(deadline_s):
                try:
                    return await self._exchange(method, path, sent)
                except SourceUnavailable:
                    await asyncio.sleep(RETRY_PAUSE_S)
                    return await self._exchange(method, path, sent)
        except TimeoutError as cause:
            raise SourceTimeout(f"{path} gave no answer in {deadline_s:g} s") from cause

    async def _exchange(self, method: str, path: str, sent: dict[str, Any] | None) -> tuple[int, bytes]:
        headers, body = self._headers, b""
        try:
            if sent is not None:
                body = json.dumps(sent, ensure_ascii=False).encode()
                headers = {**headers, "Content-Type": "application/json"}
            return await exchange(self._address, method, path, headers, body, MAX_ANSWER_BYTES)
        except TooLong as cause:
            raise ParseError(f"{path} answers with more than {MAX_ANSWER_BYTES} bytes") from cause
        except BadRequest as cause:  # its text would show the key
            raise SourceUnavailable(f"{path} cannot be asked for: the API key is no header value") from cause
        except (HttpError, OSError) as cause:
            text = str(cause) or type(cause).__name__
            raise SourceUnavailable(f"{path} cannot be reached: {text}") from cause
        except ValueError as cause:  # a model's name with what no text can hold
            raise ParseError(f"{path} cannot be read: {cause}") from cause
