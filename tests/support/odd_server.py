"""A TCP server that answers every connection with given bytes, or with silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def odd_server(answer: bytes | None, *, endless: bool = False) -> AsyncIterator[int]:
    """Its port. None: says nothing and keeps the connection; `endless`: repeats the last part for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1)
            if answer is None:
                await reader.read()  # until the client gives up
                return
            writer.write(answer)
            while endless:
                writer.write(b"x" * 65536)
                await writer.drain()
            await writer.drain()
        except OSError:  # the client went away, which is what some tests are about
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def http(status: int, body: str | bytes, kind: str = "application/json") -> bytes:
    """A whole HTTP answer."""
    data = body.encode() if isinstance(body, str) else body
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
    )
