"""An engine for demonstrations and tests with the interface of vLLM or SGLang: all it says is SIMULATED.

Two processes as in vLLM: this API server and a core that makes the tokens. So faults look as they do there:
when the core hangs, /health stays 200 and completions hang; when it is killed, requests get 500 and the
server ends with exit code 0; when the server is killed, the core stays behind. `POST
/simulated/{hang,resume,kill}` makes the first two. With `--as sglang` it has SGLang's flags, names of metrics
(only with --enable-metrics) and a /health that makes a token.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, DispatchFunction, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent import __version__
from agent.launch.embedded_answers import (
    CompletionBody,
    TokenizeBody,
    envelope,
    invalid,
    prompt_tokens,
    refused,
    streamed,
    usage_of,
)
from agent.launch.embedded_flags import parse
from agent.launch.embedded_generator import CoreDied, Generator
from agent.launch.embedded_metrics import metrics_page
from agent.launch.embedded_ranks import HeadRank, follow_if_told, head_rank
from agent.launch_parts import EngineKind

HEADER = {"X-Nodegate-Simulated": "true"}
#: vLLM's API server goes on for about this long after its core has died.
AGONY_S = 0.5


#: How long SGLang's /health waits for its token.
SGLANG_HEALTH_S = 20.0


class EmbeddedEngine:
    """The state behind the endpoints."""

    def __init__(self, options: argparse.Namespace, api_key: str | None) -> None:
        """Prepare; nothing runs yet."""
        self.kind: EngineKind = options.kind
        self.model: str = options.served_model_name or options.model
        self.longest: int | None = options.longest
        self.api_key = api_key
        self.exports = self.kind is EngineKind.VLLM or options.enable_metrics
        self.metrics = metrics_page(self.kind, self.model)
        self.generator = Generator(options.startup_s, options.token_s, self._token)

    def _token(self) -> None:
        self.metrics.token()
        self.metrics.running.set(self.generator.running)

    def check(self, body: CompletionBody) -> None:
        """Refuse what this engine does not serve."""
        if body.model != self.model:
            raise HTTPException(404, f"The model `{body.model}` does not exist.")
        needed = prompt_tokens(body) + body.wanted
        if self.longest is not None and needed > self.longest:
            raise HTTPException(
                400, f"{needed} tokens are more than the maximum of {self.longest} (SIMULATED)"
            )

    async def complete(
        self, body: CompletionBody, each: Callable[[str], None] | None = None
    ) -> tuple[str, dict[str, int]]:
        """The text and the usage of one completion, plain or chat; `each` hears of a word as it comes."""
        started_s, first = time.monotonic(), True

        def heard(word: str) -> None:
            nonlocal first
            if first:
                self.metrics.first_token(time.monotonic() - started_s)
            first = False
            if each is not None:
                each(word)

        try:
            words = await self.generator.generate(body.wanted, heard)
        except CoreDied as cause:
            raise HTTPException(500, f"EngineCore encountered an issue (SIMULATED): {cause}") from cause
        self.metrics.prompted(prompt_tokens(body))
        self.metrics.finished("length", len(words))
        self.metrics.running.set(self.generator.running)
        return " ".join(words), usage_of(body, len(words))

    async def healthy(self) -> bool:
        """What /health says: vLLM's whether the core has died, SGLang's whether it makes a token."""
        if self.generator.errored.is_set():
            return False
        if self.kind is EngineKind.VLLM:
            return True
        try:
            async with asyncio.timeout(SGLANG_HEALTH_S):
                await self.generator.generate(1)
        except (TimeoutError, CoreDied):
            return False
        return True


def build_app(engine: EmbeddedEngine) -> Starlette:
    """The endpoints. Without FastAPI, whose import takes longer than all the rest of a start."""
    routes = [*_facts(engine), *_faults(engine), *_completions(engine)]
    for route in routes:
        (route.methods or set()).discard("HEAD")  # the real ones answer 405
    return Starlette(
        routes=routes,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_mark(engine))],
        exception_handlers={HTTPException: refused, ValidationError: invalid},
    )


def _facts(engine: EmbeddedEngine) -> list[Route]:
    """What says how the engine is, and what it is."""

    async def health(_request: Request) -> Response:
        return Response(status_code=200 if await engine.healthy() else 503)

    async def version(_request: Request) -> Response:
        return JSONResponse({"version": f"{__version__}+SIMULATED"})

    async def models(_request: Request) -> Response:
        entry = {"id": engine.model, "object": "model", "created": 0, "owned_by": "SIMULATED"}
        longest = {} if engine.longest is None else {"max_model_len": engine.longest}
        return JSONResponse({"object": "list", "data": [{**entry, **longest}]})

    async def metrics(_request: Request) -> Response:
        if not engine.exports:
            raise HTTPException(404, "Not Found")
        return Response(engine.metrics.text(), media_type="text/plain; version=0.0.4")

    async def tokenize(request: Request) -> Response:
        words = str(TokenizeBody.model_validate_json(await request.body()).prompt).split()
        tokens = [100 + sum(word.encode()) % 100 for word in words]
        return JSONResponse({"tokens": tokens, "count": len(words)})

    return [
        Route("/health", health),
        Route("/version", version),
        Route("/v1/models", models),
        Route("/metrics", metrics),
        Route("/tokenize", tokenize, methods=["POST"]),
    ]


def _mark(engine: EmbeddedEngine) -> DispatchFunction:
    """What stands before every endpoint."""

    async def mark(request: Request, call: RequestResponseEndpoint) -> Response:
        """Mark every answer, and ask for the key where the real ones do."""
        key = engine.api_key
        if (
            key
            and request.url.path.startswith("/v1")
            and request.headers.get("authorization") != f"Bearer {key}"
        ):
            return JSONResponse({"error": "Unauthorized"}, 401, HEADER)
        answer = await call(request)
        answer.headers.update(HEADER)
        return answer

    return mark


def _faults(engine: EmbeddedEngine) -> list[Route]:
    """What makes the core hang, go on or die."""

    async def simulated(request: Request) -> Response:
        signals = {"hang": signal.SIGSTOP, "resume": signal.SIGCONT, "kill": signal.SIGKILL}
        fault = request.path_params["fault"]
        if fault not in signals:
            raise HTTPException(404, f"no such fault; there are: {', '.join(signals)}")
        engine.generator.signal_core(signals[fault])
        return JSONResponse({"simulated": fault})

    return [Route("/simulated/{fault}", simulated, methods=["POST"])]


def _completions(engine: EmbeddedEngine) -> list[Route]:
    """The two endpoints that generate."""

    async def completions(request: Request) -> Response:
        body = CompletionBody.model_validate_json(await request.body())
        engine.check(body)
        if body.stream:
            return streamed(engine.model, body, engine.complete)
        text, usage = await engine.complete(body)
        return JSONResponse(envelope(engine.model, "text_completion", {"text": text}, usage))

    async def chat(request: Request) -> Response:
        body = CompletionBody.model_validate_json(await request.body())
        engine.check(body)
        text, usage = await engine.complete(body)
        message = {"message": {"role": "assistant", "content": text}}
        return JSONResponse(envelope(engine.model, "chat.completion", message, usage))

    return [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
    ]


async def serve(engine: EmbeddedEngine, host: str, port: int, ranks: HeadRank | None = None) -> None:
    """Load, then listen until SIGTERM or the core's death; connections are refused before, as vLLM does."""
    if ranks is not None:
        await ranks.listen()
    print("SIMULATED engine: loading", flush=True)  # noqa: T201 (its log)
    await engine.generator.start()
    if ranks is not None:
        await ranks.complete.wait()
    config = uvicorn.Config(
        build_app(engine), host=host, port=port, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)

    @asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        carrying = asyncio.create_task(engine.generator.carry())
        ending = asyncio.create_task(_end_with_core(engine, server))
        if ranks is not None:
            ranks.on_loss = engine.generator.errored.set
        try:
            yield
        finally:
            carrying.cancel()
            ending.cancel()

    async with beside():
        print(f"SIMULATED engine: serving {engine.model} at {host} port {port}", flush=True)  # noqa: T201
        await server.serve()


async def _end_with_core(engine: EmbeddedEngine, server: uvicorn.Server) -> None:
    await engine.generator.errored.wait()
    print("SIMULATED engine: ERROR the core died", flush=True)  # noqa: T201
    await asyncio.sleep(AGONY_S)
    server.should_exit = True


def main() -> None:
    """Entry point of `python -P -m agent.launch.embedded_engine`."""
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.ignore_sigterm else _exit)
    follow_if_told(options)
    engine = EmbeddedEngine(options, options.api_key or os.environ.get("VLLM_API_KEY"))

    async def whole() -> None:
        try:
            await serve(engine, options.host, options.port, head_rank(options))
        finally:
            await engine.generator.close()

    asyncio.run(whole())


def _exit(*_: object) -> None:
    """SIGTERM while it starts; later uvicorn has handlers of its own."""
    raise SystemExit(0)


if __name__ == "__main__":
    main()
