"""Open-loop load: requests leave by a schedule, whatever became of those before; each one's fate is kept.

A latency counts from the time at which a request was due, so a client that was held up hides nothing.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

#: Requests a second, and what they ask for: every other one is streamed, every tenth is long.
RATE_HZ = 12.0
TOKENS, LONG_TOKENS = 12, 40
#: No scene may send more.
MOST = 6000
#: A client's patience: longer than a load balancer may take to find out that a node has no power.
PATIENCE_S = 40.0
WHOLE = "whole"


@dataclass(frozen=True)
class Fate:
    """What became of one request. Times are seconds of time.time()."""

    id: str
    due_s: float
    end_s: float
    status: int
    #: `whole`, or how it fell short: `cut`, `no answer`, `refused`, or the error's status and body.
    what: str

    @property
    def latency_s(self) -> float:
        """From when it was due."""
        return self.end_s - self.due_s

    @property
    def lost(self) -> bool:
        """Anything but the whole answer."""
        return self.what != WHOLE


class OpenLoop:
    """Sends from a thread of its own; `stop` waits for everything that is under way."""

    def __init__(self, name: str, place: tuple[str, int], model: str, enter: Callable[[], None]) -> None:
        """`enter` moves the thread to where the requests come from; ids begin with `name`."""
        self._name, self._place, self._model = name, place, model
        self._end = threading.Event()
        self._result: Future[list[Fate]] = Future()
        self._enter = enter
        self._thread = threading.Thread(target=self._run, daemon=True, name="open loop")
        self._thread.start()

    def stop(self) -> list[Fate]:
        """No more requests; the fates of all that were sent, in the order in which they were due."""
        self._end.set()
        return self._result.result(PATIENCE_S + 30)

    def _run(self) -> None:
        try:
            self._enter()
            self._result.set_result(asyncio.run(self._send_all()))
        except BaseException as cause:
            self._result.set_exception(cause)

    async def _send_all(self) -> list[Fate]:
        loop = asyncio.get_running_loop()
        began_s, tasks = loop.time(), list[asyncio.Task[Fate]]()
        while not self._end.is_set() and len(tasks) < MOST:
            due_s = began_s + len(tasks) / RATE_HZ
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            due_wall_s = time.time() - (loop.time() - due_s)
            tasks.append(asyncio.create_task(self._one(len(tasks), due_wall_s)))
        return await asyncio.gather(*tasks)

    async def _one(self, number: int, due_s: float) -> Fate:
        name = f"{self._name}-{number}"
        tokens = LONG_TOKENS if number % 10 == 5 else TOKENS
        status, what = 0, "no answer"
        try:
            async with asyncio.timeout(PATIENCE_S):
                status, what = await self._exchange(name, tokens, number % 2 == 0)
        except ConnectionRefusedError:
            what = "refused"
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as cause:
            what = f"no answer: {type(cause).__name__}"
        return Fate(name, due_s, time.time(), status, what)

    async def _exchange(self, name: str, tokens: int, stream: bool) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection(*self._place)
        try:
            writer.write(_request(name, self._model, tokens, stream))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            try:
                body = await reader.read(-1)
            except OSError:
                body = b""
        finally:
            writer.close()
        status = int(head.split(b" ", 2)[1])
        if status != 200:
            return status, f"{status}: {body[:200].decode(errors='replace').strip()}"
        whole = _all_events(body) if stream else _whole_answer(body, tokens)
        return status, WHOLE if whole else f"cut after {len(body)} bytes"


def _request(name: str, model: str, tokens: int, stream: bool) -> bytes:
    asked: dict[str, Any] = {"model": model, "prompt": "count", "max_tokens": tokens, "stream": stream}
    body = json.dumps(asked).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: llm\r\nx-request-id: {name}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _all_events(body: bytes) -> bool:
    """Whether a stream came to its end: the engine's last event, and the last chunk of HTTP after it."""
    return b"data: [DONE]" in body and body.endswith(b"0\r\n\r\n")


def _whole_answer(body: bytes, tokens: int) -> bool:
    """Whether an answer has as many tokens as were asked for."""
    try:
        return bool(json.loads(body)["usage"]["completion_tokens"] == tokens)
    except (ValueError, KeyError, TypeError):
        return False
