"""The engine over HTTP (health, metrics, models, completions), and the board its observations go to.

Every read has one deadline for connect, send and receive together, and a bound on the answer's size.
Connections are not kept alive: an idle one that the engine closes a moment before it is used again would
read as a fault.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.errors import ParseError, SourceTimeout, SourceUnavailable
from agent.launch_parts import EngineKind
from agent.sources import EngineObservation, Engines
from agent.sources.engine_answers import Completion, CompletionRequest, CompletionStream, parse_completion
from agent.sources.engine_http import BadRequest, HttpError, TooLong, exchange
from agent.sources.engine_metrics import EngineMetrics, parse_metrics

__all__ = [
    "Completion",
    "CompletionRequest",
    "EngineBoard",
    "EngineClient",
    "EngineMetrics",
    "ModelCard",
    "base_url",
    "parse_completion",
    "parse_metrics",
    "something_listens",
]

MAX_ANSWER_BYTES = 8 * 1024 * 1024
#: More token numbers than one text of a line can have.
MAX_TOKENS = 100_000
_LONGEST_VERSION = 1000
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


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model of an engine; `longest_tokens` is prompt and answer together, None = it does not say."""

    name: str
    longest_tokens: int | None = None


class EngineClient:
    """Bounded reads of one engine's HTTP interface; proxies, redirects and cookies are not followed."""

    def __init__(self, host: str, port: int, *, api_key: str | None = None) -> None:
        """Prepare; nothing is connected yet."""
        self._address = (reachable_host(host), port)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def close(self) -> None:
        """Nothing is kept open between reads."""

    async def health(self, deadline_s: float, path: str = "/health") -> bool:
        """Whether GET `path` answers 200; raises SourceTimeout or SourceUnavailable when nothing answers."""
        status, _ = await self._fetch("GET", path, deadline_s)
        return status == 200

    async def metrics(self, deadline_s: float, kind: EngineKind = EngineKind.VLLM) -> EngineMetrics:
        """GET /metrics, read by the names of this kind of engine."""
        status, body = await self._fetch("GET", "/metrics", deadline_s)
        if status != 200:
            raise SourceUnavailable(f"/metrics answers HTTP {status}")
        return parse_metrics(body.decode("utf-8", "replace"), kind)

    async def version(self, deadline_s: float) -> str:
        """What GET /version says."""
        status, body = await self._fetch("GET", "/version", deadline_s)
        if status != 200:
            raise SourceUnavailable(f"/version answers HTTP {status}")
        return body[:_LONGEST_VERSION].decode("utf-8", "replace")

    async def models(self, deadline_s: float) -> list[str]:
        """The names that GET /v1/models lists."""
        return [card.name for card in await self.model_cards(deadline_s)]

    async def model_cards(self, deadline_s: float) -> list[ModelCard]:
        """What GET /v1/models says of each model."""
        status, body = await self._fetch("GET", "/v1/models", deadline_s)
        if status != 200:
            raise SourceUnavailable(f"/v1/models answers HTTP {status}")
        try:
            entries = [(entry["id"], entry.get("max_model_len")) for entry in json.loads(body)["data"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
            raise ParseError("/v1/models is not a list of models") from cause
        return [
            ModelCard(name, longest if type(longest) is int and longest > 0 else None)
            for name, longest in entries
            if isinstance(name, str)
        ]

    async def tokenize(self, model: str, text: str, deadline_s: float) -> list[int]:
        """Token numbers of a text (POST /tokenize). Raises SourceError where the engine does not say them."""
        asked = {"model": model, "prompt": text, "add_special_tokens": False}
        status, body = await self._fetch("POST", "/tokenize", deadline_s, asked)
        if status != 200:
            raise SourceUnavailable(f"/tokenize answers HTTP {status}")
        try:
            tokens = json.loads(body)["tokens"]
        except (ValueError, KeyError, TypeError, RecursionError) as cause:
            raise ParseError("/tokenize answers no tokens") from cause
        if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
            raise ParseError("/tokenize answers no tokens")
        return tokens[:MAX_TOKENS]

    async def complete(self, request: CompletionRequest, deadline_s: float) -> Completion:
        """POST /v1/completions; the request is dropped at its deadline, which makes the engine abort it."""
        return parse_completion(*await self._fetch("POST", "/v1/completions", deadline_s, request.body()))

    async def stream(self, request: CompletionRequest, deadline_s: float) -> Completion:
        """The same as server-sent events, so that the time to the first token is seen. Tried once."""
        path = "/v1/completions"
        stream = CompletionStream(request.max_tokens, time.monotonic)
        try:
            async with asyncio.timeout(deadline_s):
                status, body = await self._exchange("POST", path, request.body(stream=True), stream.feed)
        except TimeoutError as cause:
            raise SourceTimeout(f"{path} gave no answer in {deadline_s:g} s") from cause
        return stream.result() if status == 200 else parse_completion(status, body)

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

    async def _exchange(
        self,
        method: str,
        path: str,
        sent: dict[str, Any] | None,
        feed: Callable[[bytes], bool] | None = None,
    ) -> tuple[int, bytes]:
        headers, body = self._headers, b""
        try:
            if sent is not None:
                body = json.dumps(sent, ensure_ascii=False).encode()
                headers = {**headers, "Content-Type": "application/json"}
            return await exchange(self._address, method, path, headers, body, MAX_ANSWER_BYTES, feed)
        except TooLong as cause:
            raise ParseError(f"{path} answers with more than {MAX_ANSWER_BYTES} bytes") from cause
        except BadRequest as cause:  # its text would show the key
            raise SourceUnavailable(f"{path} cannot be asked for: the API key is no header value") from cause
        except (HttpError, OSError) as cause:
            text = str(cause) or type(cause).__name__
            raise SourceUnavailable(f"{path} cannot be reached: {text}") from cause
        except ValueError as cause:  # a model's name with what no text can hold
            raise ParseError(f"{path} cannot be read: {cause}") from cause
