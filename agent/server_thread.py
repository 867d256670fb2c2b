"""A thread with an event loop of its own for everything that answers: HTTP, agent checks, operators.

It is not the main loop's, so that a main loop that hangs is told as what it is (503 with its age, `down
#stale`) instead of by silence, which HAProxy's agent check for one would take for no news.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import uvicorn

from agent.agent_check import Conversations, serve_agent_check
from agent.errors import DaemonError
from agent.http_protocol import MAX_HEAD_BYTES, BoundedProtocol
from agent.listening import BACKLOG

log = logging.getLogger("nodegate.server")
START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 5.0
_KEEP_ALIVE_S = 5


class QuietServer(uvicorn.Server):
    """uvicorn that wakes up once a second instead of ten times, and at once when it is to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        """Like uvicorn's own."""
        super().__init__(config)
        self._end = asyncio.Event()

    def end(self) -> None:
        """Finish what is under way and end. On the loop that serves."""
        self.should_exit = True
        self._end.set()

    async def main_loop(self) -> None:
        """Keep the Date header current until it is time to end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._end.wait()


def http_server(app: Any, protocol: type[BoundedProtocol] = BoundedProtocol) -> QuietServer:
    """uvicorn for one application, quiet: bad requests of strangers are no news."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return QuietServer(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            # asyncio accepts as many at once: uvicorn's 2048 would be let in before the first is dropped.
            backlog=BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
    )


class ServerThread:
    """Runs servers on listening sockets until stopped; the sockets are closed with it."""

    def __init__(self) -> None:
        """Nothing to serve yet."""
        self._http: list[tuple[QuietServer, socket.socket]] = []
        self._checks: list[tuple[socket.socket, Callable[[], str]]] = []
        self._thread = threading.Thread(target=self._run, name="servers", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._group: asyncio.TaskGroup | None = None
        self._talking: Conversations = {}
        self._open_checks: list[asyncio.Server] = []

    def add_http(self, server: QuietServer, listener: socket.socket) -> None:
        """Serve HTTP on a listening socket; also while others are served."""
        self._http.append((server, listener))
        self._also(partial(server.serve, [listener]))

    def add_agent_check(self, listener: socket.socket, line: Callable[[], str]) -> None:
        """Serve an agent check on a listening socket; `line` is asked for each connection."""
        self._checks.append((listener, line))
        self._also(partial(self._serve_check, listener, line))

    def _also(self, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have one more thing served by a thread that serves already."""
        loop, group = self._loop, self._group
        if loop is not None and group is not None:
            loop.call_soon_threadsafe(lambda: group.create_task(serve()))

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start and wait until everything answers, if not started yet. Raises DaemonError."""
        if not self._started.is_set():
            self._thread.start()
        if not self._started.wait(START_DEADLINE_S) or not self._thread.is_alive():
            raise DaemonError("the HTTP servers did not start; the log says why")

    def stop(self) -> None:
        """Stop serving; gives up waiting after a few seconds."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(STOP_DEADLINE_S)
        self.close_sockets()

    def close_sockets(self) -> None:
        """Close the listening sockets of a thread that has ended or was never started."""
        for _, listener in self._http:
            listener.close()
        for listener, _ in self._checks:
            listener.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        # The edge of the thread: whatever ends it is logged, and the main loop sees that it is gone.
        except Exception:
            log.exception("the HTTP servers have ended")
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        for listener, line in self._checks:
            await self._serve_check(listener, line)
        async with asyncio.TaskGroup() as group:
            for server, listener in self._http:
                group.create_task(server.serve(sockets=[listener]))
            self._group = group
            # The sockets listen already: whoever connects before uvicorn has begun waits in their backlog.
            self._started.set()
            await self._stop.wait()
            self._group = None
            for check in self._open_checks:
                check.close()
            for server, _ in self._http:
                server.end()

    async def _serve_check(self, listener: socket.socket, line: Callable[[], str]) -> None:
        self._open_checks.append(await serve_agent_check(listener, line, self._talking))
