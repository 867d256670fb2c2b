"""What load balancers ask again and again, GET of /livez and /readyz, answered before any routing.

A framework's way to an answer takes several times as long as the answer. Everything else, other methods of
these paths too, goes to the application behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent.publisher import Publisher, Reply

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_READY_OF = "/readyz/"
_TEXT = "text/"


class Probes:
    """An ASGI application in front of another one."""

    def __init__(self, app: ASGIApp, publisher: Publisher, headers: Mapping[str, str]) -> None:
        """Answer with `headers` on every reply, from what the publisher has at that moment."""
        self._app = app
        self._publisher = publisher
        self._headers = _encoded(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        reply = self._reply(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        if reply is None:
            await self._app(scope, receive, send)
            return
        kind = (
            f"{reply.media_type}; charset=utf-8" if reply.media_type.startswith(_TEXT) else reply.media_type
        )
        head = [
            (b"content-length", b"%d" % len(reply.body)),
            (b"content-type", kind.encode()),
            *self._headers,
            *_encoded(reply.headers),
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        await send({"type": "http.response.body", "body": reply.body})

    def _reply(self, path: str) -> Reply | None:
        """The answer to a probe; None for what is none."""
        if path == "/readyz":
            return self._publisher.ready()
        if path == "/livez":
            return self._publisher.live()
        if path.startswith(_READY_OF):
            engine = path.removeprefix(_READY_OF)
            if engine and "/" not in engine:
                return self._publisher.ready(engine)
        return None


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
