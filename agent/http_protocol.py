"""uvicorn's HTTP protocol with bounds: no slow, silent or numerous client keeps a load balancer waiting."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

#: A connection must bring and finish a new request within each period of this length.
PATIENCE_S = 10.0
MAX_CONNECTIONS = 256
#: A request head longer than this is refused.
MAX_HEAD_BYTES = 16 * 1024


class BoundedProtocol(H11Protocol):
    """Drops a connection without progress; at the limit the oldest idle one makes room for the newest."""

    _seen: object = None
    _opened_s = 0.0
    _look_later: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection in."""
        has_room = _make_room(self.connections)
        super().connection_made(transport)
        self._opened_s = self.loop.time()
        self._look_later = self.loop.call_later(PATIENCE_S, self._look)
        if not has_room:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._look_later is not None:
            self._look_later.cancel()
        super().connection_lost(exc)

    @property
    def opened_s(self) -> float:
        """When it was opened, on the loop's clock in seconds."""
        return self._opened_s

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        """End the connection unless it has brought a new request since the last look."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle is self._seen:
            self.transport.abort()
            return
        self._seen = self.cycle
        self._look_later = self.loop.call_later(PATIENCE_S, self._look)


class PeerProtocol(BoundedProtocol):
    """For Unix sockets: `request.client` is ("uid N", pid) as the kernel knows the peer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection in and ask the kernel who it is."""
        super().connection_made(transport)
        peer = cast(socket.socket, transport.get_extra_info("socket"))
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        self.client = (f"uid {uid}", pid)


def _make_room(connections: Iterable[Any]) -> bool:
    """Whether one more connection fits, after the oldest idle one has been dropped if need be."""
    alive = [c for c in connections if not c.transport.is_closing()]
    if len(alive) < MAX_CONNECTIONS:
        return True
    idle = [c for c in alive if isinstance(c, BoundedProtocol) and c.idle]
    if not idle:
        return False
    min(idle, key=lambda connection: connection.opened_s).transport.abort()
    return True
