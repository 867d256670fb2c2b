"""Requests and answers of the embedded engine's completions, whole or as server-sent events. SIMULATED."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

#: Makes a completion; hears of each word as it comes.
Complete = Callable[["CompletionBody", Callable[[str], None]], Awaitable[tuple[str, dict[str, int]]]]


class CompletionBody(BaseModel):
    """What is used of a request; other fields are accepted."""

    model: str
    prompt: str | list[Any] = ""
    messages: list[dict[str, Any]] = Field(default_factory=list)
    max_tokens: int = Field(16, ge=1, le=4096)
    max_completion_tokens: int | None = Field(None, ge=1, le=4096)
    stream: bool = False

    @property
    def wanted(self) -> int:
        """Tokens asked for."""
        return self.max_completion_tokens or self.max_tokens


class TokenizeBody(BaseModel):
    """What is used of a request for tokens."""

    prompt: Any = ""


async def refused(_request: Request, error: Exception) -> Response:
    """An HTTPException in the form in which the real ones, which use FastAPI, tell it."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


async def invalid(_request: Request, error: Exception) -> Response:
    """A body that is not what it should be: 422, and where the mistakes are."""
    assert isinstance(error, ValidationError)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return JSONResponse({"detail": [{**each, "loc": ["body", *each["loc"]]} for each in found]}, 422)


def prompt_tokens(body: CompletionBody) -> int:
    """A word is a token, and so is a number of a list."""
    if isinstance(body.prompt, list):
        return len(body.prompt)
    return len((body.prompt or str(body.messages)).split())


def usage_of(body: CompletionBody, made: int) -> dict[str, int]:
    """What was read and made."""
    read = prompt_tokens(body)
    return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}


def envelope(
    model: str, kind: str, choice: dict[str, Any] | None, usage: dict[str, int] | None
) -> dict[str, Any]:
    """An answer or an event with one choice, or with none."""
    whole = {"index": 0, "finish_reason": "length", "logprobs": None}
    return {
        "id": f"sim-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [] if choice is None else [{**whole, **choice}],
        "usage": usage,
    }


def streamed(model: str, body: CompletionBody, complete: Complete) -> StreamingResponse:
    """The completion as events: one a token, the usage, the end."""

    async def events() -> AsyncIterator[str]:
        words: asyncio.Queue[str | None] = asyncio.Queue()
        making = asyncio.ensure_future(complete(body, words.put_nowait))
        making.add_done_callback(lambda _: words.put_nowait(None))
        try:
            left = body.wanted
            while (word := await words.get()) is not None:
                left -= 1
                reason = None if left else "length"
                yield _event(model, {"text": f" {word}", "finish_reason": reason}, None)
            _, usage = await making
            yield _event(model, None, usage)
            yield "data: [DONE]\n\n"
        finally:
            making.cancel()

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(model: str, choice: dict[str, Any] | None, usage: dict[str, int] | None) -> str:
    return f"data: {json.dumps(envelope(model, 'text_completion', choice, usage))}\n\n"
