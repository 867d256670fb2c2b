"""HAProxy resets its agent check's connection as soon as it has read the line: that is no news to anyone."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from typing import Any

import pytest

from agent.agent_check import serve_agent_check
from agent.listening import bind_tcp

#: SO_LINGER on, zero seconds: close() sends a reset, as HAProxy does.
RESET = struct.pack("ii", 1, 0)


def _ask_and_reset(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return peer.recv(100)


def test_a_reset_after_the_line_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[dict[str, Any]] = []
    late: list[int] = []
    shutdown = socket.socket.shutdown

    def reset_first(self: socket.socket, how: int) -> None:
        """As if the peer's reset had always been faster: what the kernel then answers."""
        late.append(how)
        shutdown(self, how)
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    async def whole() -> list[bytes]:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
        listener = bind_tcp("127.0.0.1", 0, "test")
        server = await serve_agent_check(listener, lambda: "up ready 100%", {})
        monkeypatch.setattr(socket.socket, "shutdown", reset_first)
        port = server.sockets[0].getsockname()[1]
        lines = [await asyncio.to_thread(_ask_and_reset, port) for _ in range(20)]
        # The client has its line before the server has shut its side down: wait for the last of them.
        for _ in range(1000):
            if len(late) == 20:
                break
            await asyncio.sleep(0.01)
        server.close()
        await server.wait_closed()
        return lines

    assert asyncio.run(whole()) == [b"up ready 100%\n"] * 20
    assert len(late) == 20
    assert problems == []
