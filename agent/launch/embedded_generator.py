"""The embedded engine's link to its core process: requests go in, tokens come out. SIMULATED."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable


class CoreDied(Exception):
    """The core process has ended; nothing can be generated any more."""


class Generator:
    """Starts the core and carries requests to it.

    Like vLLM's API server it notices nothing when the core hangs.
    """

    def __init__(self, startup_s: float, token_s: float, on_token: Callable[[], None]) -> None:
        """Prepare; `on_token` is called for each token that arrives."""
        self._arguments = (str(startup_s), str(token_s))
        self._on_token = on_token
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Queue[str | None]] = {}
        self._core: asyncio.subprocess.Process | None = None
        self.errored = asyncio.Event()
        self.running = 0

    async def start(self) -> None:
        """Start the core and wait until it is ready. CoreDied when it ends before that."""
        self._core = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "agent.launch.embedded_core",
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        if await self._line() is None:
            raise CoreDied("the core ended while it was starting")

    async def _line(self) -> dict[str, object] | None:
        """The core's next line; None at its end."""
        if self._core is None or self._core.stdout is None:
            return None
        line = await self._core.stdout.readline()
        return json.loads(line) if line else None

    async def carry(self) -> None:
        """Hand arriving tokens to their requests until the core ends."""
        while (token := await self._line()) is not None:
            self._on_token()
            queue = self._answers.get(int(str(token["id"])))
            if queue is not None:
                queue.put_nowait(str(token["word"]))
                if token["last"]:
                    queue.put_nowait(None)
        self.errored.set()

    async def generate(self, max_tokens: int, each: Callable[[str], None] | None = None) -> list[str]:
        """The words of one completion; `each` hears of one as it comes. CoreDied when the core ends."""
        if self.errored.is_set() or self._core is None or self._core.stdin is None:
            raise CoreDied("the core has ended")
        number = next(self._numbers)
        queue = self._answers[number] = asyncio.Queue()
        self._core.stdin.write(json.dumps({"id": number, "max_tokens": max_tokens}).encode() + b"\n")
        died = asyncio.ensure_future(self.errored.wait())
        collected = asyncio.ensure_future(self._collect(queue, each))
        try:
            await asyncio.wait((died, collected), return_when=asyncio.FIRST_COMPLETED)
            if not collected.done():
                raise CoreDied("the core ended during the request")
            return collected.result()
        finally:
            died.cancel()
            collected.cancel()
            del self._answers[number]

    async def _collect(
        self, queue: asyncio.Queue[str | None], each: Callable[[str], None] | None
    ) -> list[str]:
        words: list[str] = []
        try:
            while (word := await queue.get()) is not None:
                self.running += not words  # counted once the core has begun, so a hung core shows 0
                words.append(word)
                if each is not None:
                    each(word)
        finally:
            self.running -= bool(words)
        return words

    def signal_core(self, number: signal.Signals) -> None:
        """What a fault of the core is made of: stop it, let it go on, kill it."""
        if self._core is not None and self._core.returncode is None:
            os.kill(self._core.pid, number)

    async def close(self) -> None:
        """End the core; a stopped one too."""
        if self._core is not None and self._core.returncode is None:
            self._core.kill()
            await self._core.wait()
