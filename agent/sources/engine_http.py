"""One HTTP request over a connection of its own, by h11 (which serves the agent's own API too).

A full client spends more on one request to the loopback than the engine does, and every engine is asked
twice a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import h11

_READ_BYTES = 64 * 1024
_HEAD_BYTES = 64 * 1024


class HttpError(Exception):
    """The other end does not speak HTTP, or stops in the middle of an answer."""


class TooLong(Exception):
    """The answer is longer than was allowed."""


class BadRequest(Exception):
    """What is to be sent is no HTTP: a header with what no header can hold."""


async def exchange(
    address: tuple[str, int],
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    most_bytes: int,
    feed: Callable[[bytes], bool] | None = None,
) -> tuple[int, bytes]:
    """Status and body of the answer. Raises OSError, HttpError, TooLong, BadRequest; waits without end.

    The body of a 200 goes to `feed` as it arrives, where there is one; the exchange ends when `feed` says no.
    """
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
    sent = _request(connection, address, method, path, headers, body)
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(sent)
        await writer.drain()
        return await _answer(connection, reader, most_bytes, feed)
    finally:
        # Dropped, not closed in order: nothing is waited for, and an engine aborts what it works at.
        writer.transport.abort()


def _request(
    connection: h11.Connection,
    address: tuple[str, int],
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
) -> bytes:
    host, port = address
    try:
        fields = {
            "Host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "Accept": "*/*",
            "Connection": "close",
            **headers,
            **({"Content-Length": str(len(body))} if body else {}),
        }
        head = [(name.encode(), value.encode()) for name, value in fields.items()]
        request = connection.send(h11.Request(method=method, target=path, headers=head)) or b""
    except (h11.LocalProtocolError, UnicodeEncodeError) as cause:
        raise BadRequest from cause
    data = connection.send(h11.Data(body)) or b"" if body else b""
    return request + data + (connection.send(h11.EndOfMessage()) or b"")


async def _answer(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    most_bytes: int,
    feed: Callable[[bytes], bool] | None,
) -> tuple[int, bytes]:
    status, body, size = 0, bytearray(), 0
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_READ_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > most_bytes:
                    raise TooLong
                if feed is None or status != 200:
                    body += event.data
                elif not feed(bytes(event.data)):
                    return status, b""
            elif isinstance(event, h11.EndOfMessage):
                return status, bytes(body)
            elif not isinstance(event, h11.InformationalResponse):
                raise HttpError("the connection was closed without an answer")
    except h11.RemoteProtocolError as cause:
        raise HttpError(str(cause)) from cause
