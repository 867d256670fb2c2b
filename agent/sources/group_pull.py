"""Asking another member of a group: its sealed status over one address, and whether a port is let through."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from agent.errors import ParseError, SourceTimeout, SourceUnavailable
from agent.sources.engine_http import BadRequest, HttpError, TooLong, exchange
from agent.sources.names import Names


async def pull_status(
    address: tuple[str, int], engine: str, nonce: str, deadline_s: float, most_bytes: int, names: Names
) -> bytes:
    """The answer's bytes, not looked at yet. Raises SourceTimeout, SourceUnavailable, ParseError."""
    path = f"/group/{engine}?nonce={nonce}"
    try:
        async with asyncio.timeout(deadline_s):
            code, body = await _exchange(await names.of(address[0]), address[1], path, most_bytes)
    except TimeoutError as cause:
        raise SourceTimeout(f"no answer within {deadline_s:g} s") from cause
    except OSError as cause:
        raise SourceUnavailable(_words(cause)) from cause
    except (HttpError, TooLong, BadRequest) as cause:
        raise ParseError("what answers there is no nodegate agent") from cause
    if code == 404:
        raise SourceUnavailable(f"the agent there has no group for engine {engine}")
    if code != 200:
        raise SourceUnavailable(f"the agent there answers {code}")
    return body


async def _exchange(hosts: tuple[str, ...], port: int, path: str, most_bytes: int) -> tuple[int, bytes]:
    """Ask at each address of a name until one answers. Raises what the last one did."""
    for host in hosts[:-1]:
        with contextlib.suppress(OSError):  # the next address is tried
            return await exchange((host, port), "GET", path, {}, b"", most_bytes)
    return await exchange((hosts[-1], port), "GET", path, {}, b"", most_bytes)


async def held_back(address: tuple[str, int], deadline_s: float, names: Names) -> str:
    """Why a port cannot be reached; empty when it can.

    A refused connection is let through: nothing listens there yet, but no firewall swallowed the question.
    """
    try:
        async with asyncio.timeout(deadline_s):
            hosts = await names.of(address[0])
            _, writer = await asyncio.open_connection(hosts[0], address[1])
    except ConnectionRefusedError:
        return ""
    except TimeoutError:
        return f"no answer within {deadline_s:g} s"
    except OSError as cause:
        return _words(cause)
    writer.transport.abort()
    return ""


def _words(cause: OSError) -> str:
    """The system's own words: asyncio's name the call, and a resolver's numbers are no errno."""
    if isinstance(cause, socket.gaierror):
        return (cause.strerror or str(cause)).lower()
    return (os.strerror(cause.errno) if cause.errno else str(cause)).lower()
