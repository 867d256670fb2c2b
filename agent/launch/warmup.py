"""The warm-up.

Completions that must succeed before an engine may take traffic (first ones compile kernels).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.errors import LaunchError, SourceError
from agent.launch.canary import fault_of
from agent.node_profile import Warmup
from agent.sources import Clock
from agent.sources.engine import CompletionRequest, EngineClient


async def warm_up(
    warmup: Warmup, model: str, client: EngineClient, clock: Clock, say: Callable[[str], None]
) -> None:
    """Run the requests one after another, then the concurrent ones; LaunchError for the first that fails.

    Every prompt is different, or the prefix cache would answer for the model.
    """
    until = clock.mono_s() + warmup.deadline_s
    total = warmup.requests + warmup.concurrent
    for number in range(1, warmup.requests + 1):
        say(f"warm-up {number} of {total}")
        await _complete(warmup, model, number, client, until - clock.mono_s())
    if warmup.concurrent:
        say(f"warm-up {warmup.requests + 1} to {total} of {total}, all at once")
        left_s = until - clock.mono_s()
        numbers = range(warmup.requests + 1, total + 1)
        try:
            async with asyncio.TaskGroup() as group:  # the first that fails cancels the others
                for number in numbers:
                    group.create_task(_complete(warmup, model, number, client, left_s))
        except* LaunchError as failed:
            raise failed.exceptions[0] from None


async def _complete(warmup: Warmup, model: str, number: int, client: EngineClient, left_s: float) -> None:
    """One completion, judged by its content."""
    request = CompletionRequest(model, f"Warm-up {number}: count one two three", warmup.max_tokens)
    try:
        completion = await client.complete(request, max(left_s, 0.0))
    except SourceError as cause:
        raise LaunchError(f"warm-up request {number} failed: {cause}") from cause
    fault = fault_of(completion)
    if fault is not None:
        raise LaunchError(f"warm-up request {number} failed: {fault}")
