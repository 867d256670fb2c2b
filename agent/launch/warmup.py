"""The warm-up: completions that must succeed before an engine may take traffic (first ones compile kernels).

Short ones, the longest prefill, as many at once as it is started for, then the time to a first token.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from agent.engine_evidence import WarmupCurve, WarmupStep
from agent.errors import LaunchError, SourceError, SourceTimeout
from agent.launch.canary import fault_of
from agent.launch.warmup_plan import token_prompt
from agent.node_profile import Warmup
from agent.sources import Clock
from agent.sources.engine import Completion, CompletionRequest, EngineClient


@dataclass(frozen=True, slots=True)
class WarmupOrder:
    """What is asked: counts, and the tokens of the long prompt (0 = none).

    `automatic` marks a long prompt whose length the profile does not give: an engine that refuses that one
    has not failed. `where` is the warm-up's place in the profile.
    """

    warmup: Warmup
    concurrent: int
    long_tokens: int
    automatic: bool
    first_token: bool
    where: str

    @property
    def total(self) -> int:
        """All completions but the one whose first token is timed."""
        return self.warmup.requests + bool(self.long_tokens) + self.concurrent


@dataclass
class WarmUp:
    """One warm-up; `curve` is what is known of it at any time, also when it fails."""

    order: WarmupOrder
    model: str
    client: EngineClient
    clock: Clock
    say: Callable[[str], None]
    alphabet: Callable[[], Awaitable[Sequence[int]]]
    steps: list[WarmupStep] = field(default_factory=list)
    until_mono_s: float = 0.0

    @property
    def curve(self) -> WarmupCurve:
        """The requests that have ended."""
        return WarmupCurve(tuple(self.steps))

    async def run(self) -> None:
        """All of it; LaunchError for the first request that fails. Every prompt is different."""
        order = self.order
        self.until_mono_s = self.clock.mono_s() + order.warmup.deadline_s
        number = 0
        for number in range(1, order.warmup.requests + 1):
            self.say(f"warm-up {number} of {order.total}")
            await self._short("short", number)
        if order.long_tokens:
            number += 1
            self.say(f"warm-up {number} of {order.total}, a prefill of {order.long_tokens} tokens")
            await self._long(number)
        if order.concurrent:
            self.say(f"warm-up {number + 1} to {order.total} of {order.total}, all at once")
            await self._at_once(range(number + 1, order.total + 1))
        if order.first_token:
            self.say("warm-up: time to the first token")
            await self._first_token(order.total + 1)

    async def _at_once(self, numbers: range) -> None:
        try:
            async with asyncio.TaskGroup() as group:  # the first that fails cancels the others
                for number in numbers:
                    group.create_task(self._short("concurrent", number))
        except* LaunchError as failed:
            raise failed.exceptions[0] from None

    async def _short(self, kind: str, number: int) -> None:
        request = CompletionRequest(self.model, self._text(number), self.order.warmup.max_tokens)
        latency_s, completion = await self._timed(number, self.client.complete, request)
        self._judge(number, completion)
        self.steps.append(WarmupStep(kind, latency_s))

    async def _long(self, number: int) -> None:
        """One token after the longest prompt, whose numbers make its length exact."""
        tokens = self.order.long_tokens
        alphabet = await self.alphabet()
        seed = random.getrandbits(64)  # another start must not find it in a cache that outlives the engine
        request = CompletionRequest(self.model, token_prompt(alphabet, tokens, seed), 1)
        latency_s, completion = await self._timed(
            number, self.client.complete, request, f" (a prefill of {tokens} tokens)", "long_prompt_tokens"
        )
        refused = self.order.automatic and completion.http_status in (400, 413, 422)
        if not refused:
            self._judge(number, completion, f" (a prefill of {tokens} tokens)")
        fault = f"refused with HTTP {completion.http_status}" if refused else ""
        first_s = None if refused else latency_s
        self.steps.append(WarmupStep("long", latency_s, tokens, first_s, fault))

    async def _first_token(self, number: int) -> None:
        """A streamed request. Where no limit is set, an engine that does not stream is told, not failed."""
        most_s = self.order.warmup.first_token_s
        request = CompletionRequest(self.model, self._text(number), self.order.warmup.max_tokens)
        latency_s, completion = await self._timed(number, self.client.stream, request)
        fault = fault_of(completion)
        took_s = completion.first_token_s
        if fault is None and took_s is None:
            fault = "the stream has no token"
        self.steps.append(WarmupStep("first_token", latency_s, None, took_s, fault or ""))
        if most_s is None:
            if completion.http_status >= 500:
                self._judge(number, completion)
            return
        if fault is not None or took_s is None:
            raise LaunchError(f"warm-up: the time to the first token cannot be measured: {fault}")
        if took_s > most_s:
            raise LaunchError(
                f"warm-up: the first token took {took_s:.2f} s, at most {most_s:g} s is allowed "
                f"({self.order.where}.first_token_s)"
            )

    def _text(self, number: int) -> str:
        return f"Warm-up {number}: count one two three"

    def _left_s(self) -> float:
        return max(0.0, self.until_mono_s - self.clock.mono_s())

    async def _timed(
        self,
        number: int,
        ask: Callable[[CompletionRequest, float], Awaitable[Completion]],
        request: CompletionRequest,
        what: str = "",
        lower: str = "",
    ) -> tuple[float, Completion]:
        """The completion and how long it took; LaunchError when none comes."""
        started_s = self.clock.mono_s()
        try:
            completion = await ask(request, self._left_s())
        except SourceTimeout as cause:
            keys = f"raise {self.order.where}.deadline_s" + (
                f" or lower {self.order.where}.{lower}" if lower else ""
            )
            raise LaunchError(
                f"warm-up request {number}{what} failed: {cause}, the rest of the warm-up's "
                f"{self.order.warmup.deadline_s:g} s; {keys}"
            ) from cause
        except SourceError as cause:
            raise LaunchError(f"warm-up request {number}{what} failed: {cause}") from cause
        return self.clock.mono_s() - started_s, completion

    def _judge(self, number: int, completion: Completion, what: str = "") -> None:
        fault = fault_of(completion)
        if fault is not None:
            raise LaunchError(f"warm-up request {number}{what} failed: {fault}")
