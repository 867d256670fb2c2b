"""A thread with an event loop, in which a request can be bounded as a whole: name, TLS, headers and body."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import socket
import threading
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from agent.errors import SourceTimeout, SourceUnavailable

T = TypeVar("T")
#: The connections of whoever runs now.
_mine: contextvars.ContextVar[Connections | None] = contextvars.ContextVar("connections", default=None)


class Connections:
    """Connections that were opened and not yet given up, so that all can be cut.

    Whoever is cut off between connecting and the end of the handshake has nothing in hand yet to close: the
    HTTP client loses such a connection, and the event loop would keep it open for as long as the other side.
    """

    def __init__(self) -> None:
        """None yet."""
        self._opened: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    def add(self, transport: asyncio.Transport) -> None:
        """Take note of a connection; one that is closed is forgotten by itself."""
        self._opened.add(transport)

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Take note of what is opened meanwhile, and cut all of it when this is cut off."""
        token = _mine.set(self)
        try:
            yield
        except asyncio.CancelledError:
            self.cut()
            raise
        finally:
            _mine.reset(token)

    def cut(self) -> None:
        """Close all at once; the loop needs a moment more for each."""
        for transport in list(self._opened):
            transport.abort()
        self._opened.clear()


class _Loop(asyncio.SelectorEventLoop):
    """Knows its connections, and resolves names in daemon threads: one that hangs must not keep the process
    from ending."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = Connections()

    async def create_connection(self, *where: Any, **how: Any) -> Any:
        transport, protocol = await super().create_connection(*where, **how)
        for connections in (self.connections, _mine.get()):
            if connections is not None:
                connections.add(transport)
        return transport, protocol

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
            # RuntimeError: the loop has been closed meanwhile, nobody waits for the name any more.
            with contextlib.suppress(RuntimeError):
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
        ending = asyncio.run_coroutine_threadsafe(self._end(loop, last, at_most_s), loop)
        concurrent.futures.wait([ending], 2 * at_most_s + 1.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(1.0)

    async def _end(self, loop: _Loop, last: Coroutine[Any, Any, None], at_most_s: float) -> None:
        own = asyncio.create_task(last)
        others = asyncio.all_tasks() - {own, asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=at_most_s / 2)
        await asyncio.wait({own}, timeout=at_most_s)
        own.cancel()
        await asyncio.wait({own}, timeout=at_most_s / 2)
        loop.connections.cut()
        for _ in range(2):  # an aborted connection closes its socket in the loop's next round
            await asyncio.sleep(0)


def _main(loop: _Loop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()
