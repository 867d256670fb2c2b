"""Run a function that may hang in a thread that can be given up.

The shared pool of threads is not used for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_spare_thread(function: Callable[[], T], deadline_s: float) -> T:
    """The function's result; TimeoutError after the deadline, when its thread is left to itself.

    The thread is a daemon: one that hangs in the kernel does not keep the agent from ending.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def deliver(value: T | None, cause: Exception | None) -> None:
        if result.done():  # given up
            return
        if cause is not None:
            result.set_exception(cause)
        else:
            result.set_result(value)  # type: ignore[arg-type]  # no cause: the value is a T

    def work() -> None:
        try:
            outcome: tuple[T | None, Exception | None] = (function(), None)
        except Exception as cause:  # noqa: BLE001 (not swallowed: raised again where the result is awaited)
            outcome = (None, cause)
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, *outcome)

    threading.Thread(target=work, name="nodegate-spare", daemon=True).start()
    async with asyncio.timeout(deadline_s):
        return await result
