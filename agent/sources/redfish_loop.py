"""A thread with an event loop, in which a request can be bounded as a whole: name, TLS, headers and body."""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from agent.errors import SourceTimeout, SourceUnavailable

T = TypeVar("T")


class _Loop(asyncio.SelectorEventLoop):
    """Resolves names in daemon threads: one that hangs must not keep the process from ending."""

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        found: asyncio.Future[Any] = self.create_future()

        def tell(result: Any, error: OSError | None) -> None:
            if found.done():
                return
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(result)

        def resolve() -> None:
            try:
                result, error = socket.getaddrinfo(host, port, family, type, proto, flags), None
            except OSError as cause:
                result, error = [], cause
            if not self.is_closed():
                self.call_soon_threadsafe(tell, result, error)

        threading.Thread(target=resolve, name="redfish-name", daemon=True).start()
        return await found


class LoopThread:
    """Runs coroutines for other threads; starts at the first one."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, work: Coroutine[Any, Any, T], at_most_s: float) -> T:
        """The result of a coroutine. Raises SourceTimeout if the loop itself is stuck."""
        try:
            loop = self._running()
        except SourceUnavailable:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result(at_most_s)
        except concurrent.futures.CancelledError:
            raise SourceUnavailable("the Redfish client is being closed") from None
        except TimeoutError:
            future.cancel()
            raise SourceTimeout(f"no answer within {at_most_s:g} s") from None

    def _running(self) -> _Loop:
        with self._lock:
            if self._closed:
                raise SourceUnavailable("the Redfish client is closed")
            if self._loop is None:
                self._loop = loop = _Loop()
                self._thread = threading.Thread(target=_main, args=(loop,), name="redfish", daemon=True)
                self._thread.start()
            return self._loop

    def close(self, last: Coroutine[Any, Any, None], at_most_s: float) -> None:
        """Cancel what runs, run `last` for at most that long, and end the thread."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = None
        if loop is None or thread is None:
            last.close()
            return
        ending = asyncio.run_coroutine_threadsafe(self._end(last, at_most_s), loop)
        concurrent.futures.wait([ending], at_most_s + 1.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(1.0)

    async def _end(self, last: Coroutine[Any, Any, None], at_most_s: float) -> None:
        own = asyncio.create_task(last)
        others = asyncio.all_tasks() - {own, asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=at_most_s / 2)
        await asyncio.wait({own}, timeout=at_most_s)
        own.cancel()


def _main(loop: _Loop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()
