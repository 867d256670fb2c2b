"""An engine for demonstrations and tests with a vLLM server's interface: all that it says is SIMULATED.

Two processes as in vLLM: this API server and a core that makes the tokens. So faults look as they do there:
when the core hangs, /health stays 200 and completions hang; when it is killed, requests get 500 and the
server ends with exit code 0; when the server is killed, the core stays behind. `POST
/simulated/{hang,resume,kill}` makes the first two.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from agent import __version__
from agent.launch.embedded_flags import parser
from agent.launch.embedded_generator import CoreDied, Generator
from agent.launch.embedded_metrics import EngineMetricsPage

HEADER = {"X-Nodegate-Simulated": "true"}
#: vLLM's API server goes on for about this long after its core has died.
AGONY_S = 0.5


class CompletionBody(BaseModel):
    """What is used of a request; other fields are accepted."""

    model: str
    prompt: str | list[Any] = ""
    messages: list[dict[str, Any]] = Field(default_factory=list)
    max_tokens: int = Field(16, ge=1, le=4096)
    max_completion_tokens: int | None = Field(None, ge=1, le=4096)
    stream: bool = False


class EmbeddedEngine:
    """The state behind the endpoints."""

    def __init__(self, model: str, api_key: str | None, startup_s: float, token_s: float) -> None:
        """Prepare; nothing runs yet."""
        self.model = model
        self.api_key = api_key
        self.metrics = EngineMetricsPage(model)
        self.generator = Generator(startup_s, token_s, self._token)

    def _token(self) -> None:
        self.metrics.token()
        self.metrics.running.set(self.generator.running)

    async def complete(self, body: CompletionBody) -> tuple[str, dict[str, int]]:
        """The text and the usage of one completion, plain or chat."""
        if body.model != self.model:
            raise HTTPException(404, f"The model `{body.model}` does not exist.")
        if body.stream:
            raise HTTPException(400, "the SIMULATED engine does not stream")
        wanted = body.max_completion_tokens or body.max_tokens
        prompt_tokens = len(str(body.prompt or body.messages).split())
        try:
            words = await self.generator.generate(wanted)
        except CoreDied as cause:
            raise HTTPException(500, f"EngineCore encountered an issue (SIMULATED): {cause}") from cause
        self.metrics.prompted(prompt_tokens)
        self.metrics.finished("length")
        self.metrics.running.set(self.generator.running)
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(words),
            "total_tokens": prompt_tokens + len(words),
        }
        return " ".join(words), usage


def build_app(engine: EmbeddedEngine) -> FastAPI:
    """The endpoints."""
    app = FastAPI(title="SIMULATED engine", openapi_url=None)

    @app.middleware("http")
    async def mark(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        """Mark every answer, and ask for the key where vLLM does."""
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

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=503 if engine.generator.errored.is_set() else 200)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": f"{__version__}+SIMULATED"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        entry = {"id": engine.model, "object": "model", "created": 0, "owned_by": "SIMULATED"}
        return {"object": "list", "data": [entry]}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(engine.metrics.text(), media_type="text/plain; version=0.0.4")

    _add_faults(app, engine)
    _add_completions(app, engine)
    return app


def _add_faults(app: FastAPI, engine: EmbeddedEngine) -> None:
    """What makes the core hang, go on or die."""

    @app.post("/simulated/{fault}")
    async def simulated(fault: str) -> dict[str, str]:
        signals = {"hang": signal.SIGSTOP, "resume": signal.SIGCONT, "kill": signal.SIGKILL}
        if fault not in signals:
            raise HTTPException(404, f"no such fault; there are: {', '.join(signals)}")
        engine.generator.signal_core(signals[fault])
        return {"simulated": fault}


def _add_completions(app: FastAPI, engine: EmbeddedEngine) -> None:
    """The two endpoints that generate."""

    def envelope(kind: str, choice: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
        whole = {"index": 0, "finish_reason": "length", "logprobs": None, **choice}
        return {
            "id": f"sim-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": engine.model,
            "choices": [whole],
            "usage": usage,
        }

    @app.post("/v1/completions")
    async def completions(body: CompletionBody) -> dict[str, Any]:
        text, usage = await engine.complete(body)
        return envelope("text_completion", {"text": text}, usage)

    @app.post("/v1/chat/completions")
    async def chat(body: CompletionBody) -> dict[str, Any]:
        text, usage = await engine.complete(body)
        return envelope("chat.completion", {"message": {"role": "assistant", "content": text}}, usage)


async def serve(engine: EmbeddedEngine, host: str, port: int) -> None:
    """Load, then listen until SIGTERM or the core's death; connections are refused before, as vLLM does."""
    print("SIMULATED engine: loading", flush=True)  # noqa: T201 (its log)
    await engine.generator.start()
    config = uvicorn.Config(
        build_app(engine), host=host, port=port, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)

    @asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        carrying = asyncio.create_task(engine.generator.carry())
        ending = asyncio.create_task(_end_with_core(engine, server))
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
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.ignore_sigterm else _exit)
    key = options.api_key or os.environ.get("VLLM_API_KEY")
    engine = EmbeddedEngine(
        options.served_model_name or options.model, key, options.startup_s, options.token_s
    )

    async def whole() -> None:
        try:
            await serve(engine, options.host, options.port)
        finally:
            await engine.generator.close()

    asyncio.run(whole())


def _exit(*_: object) -> None:
    """SIGTERM while it starts; later uvicorn has handlers of its own."""
    raise SystemExit(0)


if __name__ == "__main__":
    main()
