"""A program: the least that answers: an empty ASGI application in the daemon's own kind of server.

Prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import sys
from typing import Any

from agent.listening import bind_tcp
from agent.server_thread import ServerThread, http_server

HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"3")],
}


async def empty(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """200 `ok`."""
    if scope["type"] == "http":
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"ok\n"})


def main() -> None:
    listener = bind_tcp("127.0.0.1", 0, "bench")
    thread = ServerThread()
    thread.add_http(http_server(empty), listener)  # type: ignore[arg-type]
    thread.start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
    thread.stop()


if __name__ == "__main__":
    main()
