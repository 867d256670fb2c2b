"""HAProxy's agent check: a TCP server for each engine that says one line and ends the connection.

https://docs.haproxy.org/3.0/configuration.html#5.2-agent-check. HAProxy ignores an agent that cannot be
reached, so this is a hint beside the HTTP check, never instead of it; what cannot fail silently is a line
that is too old, which reads `down #stale`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

#: HAProxy may send a string of its own (`agent-send`); it is read and dropped, but not for longer than this.
LINGER_S = 1.0
#: Of all agent checks of a node together: a flood must not use up the descriptors that the checks need.
MAX_CONNECTIONS = 128


class Conversation(asyncio.Protocol):
    """One connection."""

    def __init__(self, line: Callable[[], str], open_: Conversations) -> None:
        """Say `line()` once connected; `open_` is every connection of the node's agent checks."""
        self._line = line
        self._open = open_
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say the line, and that nothing follows it."""
        stream = cast(asyncio.Transport, transport)
        if len(self._open) >= MAX_CONNECTIONS:
            next(iter(self._open.values())).abort()
        self._open[self] = stream
        self._end = asyncio.get_running_loop().call_later(LINGER_S, stream.abort)
        stream.write(f"{self._line()}\n".encode("ascii", "replace"))
        try:
            stream.write_eof()
        except OSError:
            # HAProxy resets the connection as soon as it has the line, which can be before this.
            stream.abort()

    def data_received(self, data: bytes) -> None:
        """Whatever it is: nothing that is said here changes anything."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """Forget the connection."""
        self._open.pop(self, None)
        if self._end is not None:
            self._end.cancel()


#: The open connections, oldest first.
Conversations = dict[Conversation, asyncio.Transport]


async def serve_agent_check(
    listener: socket.socket, line: Callable[[], str], open_: Conversations
) -> asyncio.Server:
    """Serve on a listening socket; `line` is asked anew for each connection."""
    return await asyncio.get_running_loop().create_server(lambda: Conversation(line, open_), sock=listener)
