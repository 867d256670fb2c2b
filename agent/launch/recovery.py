"""What a restarted agent finds of its predecessor's engine: one to keep, or leftovers to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agent.errors import LaunchError, SourceError
from agent.launch.engine_run import EngineRun, Supervisor
from agent.launch.launch_profile import LaunchPlan
from agent.launch.status_book import StatusBook

#: How long a restarted agent tries to make the plan of an engine that it found running, before it ends it.
#: A source that is silent (NVML) is waited for without end: that is no fault of an engine that runs.
RECOVER_PATIENCE_S = 30.0
_RETRY_S = 1.0

BuildPlan = Callable[[], Awaitable[LaunchPlan]]
#: What is left of it, the engine itself when it can be kept, and then its plan.
Found = tuple[EngineRun | None, EngineRun | None, LaunchPlan | None]


async def find_earlier(supervisor: Supervisor, book: StatusBook, build: BuildPlan) -> Found:
    """Look for it until there is an answer: nothing may be started while an engine may run."""
    while True:
        try:
            left = await supervisor.leftovers()
            if left is None:
                return None, None, None
            plan = await _plan_of_earlier(book, build)
            return left, await supervisor.adopt(plan), plan
        except SourceError as cause:
            book.note(f"whether an earlier engine runs is not known yet: {cause}")
        await asyncio.sleep(_RETRY_S)


async def _plan_of_earlier(book: StatusBook, build: BuildPlan) -> LaunchPlan | None:
    """The plan to compare an earlier launch with. A living engine is worth waiting for NVML a while."""
    until = book.clock.mono_s() + RECOVER_PATIENCE_S
    while True:
        try:
            return await build()
        except (LaunchError, SourceError) as cause:
            book.note(f"an earlier engine runs, but there is no launch plan yet: {cause}")
            silent = isinstance(cause, SourceError) or isinstance(cause.__cause__, SourceError)
        if book.clock.mono_s() >= until and not silent:
            return None
        await asyncio.sleep(_RETRY_S)
