"""One HTTP exchange with a Redfish service: bounded, to that service alone, told in words without secrets.

Texts of exceptions are not passed on: those of an HTTP library can quote a header, which may hold a token.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from agent.errors import ParseError, SourceUnavailable
from agent.sources.json_depth import too_deep

MAX_DOCUMENT_BYTES = 8 * 1024 * 1024
MAX_REDIRECTS = 3
#: Longest integer that a document may hold; a longer one takes Python long to read.
MAX_DIGITS = 400
#: What a link in a document may be: a path of this service. A BMC's word is not trusted with a host.
_PATH = re.compile(r"/redfish/v1(?:[/?][\x21-\x7e]{0,2000})?")


class Unreachable(SourceUnavailable):
    """Nothing answers there that could be trusted: no name, no connection, no TLS."""


class Overloaded(SourceUnavailable):
    """The service says that it cannot answer now."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: httpx.Headers
    body: bytes


def valid_path(path: str) -> str:
    """The path as it may be asked for. Raises ParseError for what is no path of a Redfish service."""
    if not _PATH.fullmatch(path) or "/../" in f"{path}/":
        raise ParseError(f"{path[:80]!r} is no path of a Redfish service")
    return path


async def exchange(
    client: httpx.AsyncClient,
    origin: str,
    method: str,
    path: str,
    headers: Mapping[str, str],
    sent: Mapping[str, str] | None = None,
) -> Answer:
    """Ask once. A connection that the service closed while it was idle is opened again, for reading only."""
    try:
        return await _follow(client, origin, method, path, headers, sent)
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as cause:
        if method != "GET":
            raise Unreachable(f"{origin}: {reason(cause)}") from None
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as cause:
        raise Unreachable(f"{origin}: {reason(cause)}") from None
    if client.is_closed:
        raise SourceUnavailable(f"{origin}: the client was closed while it asked")
    try:
        return await _follow(client, origin, method, path, headers, sent)
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as cause:
        raise Unreachable(f"{origin}: {reason(cause)}") from None


async def _follow(
    client: httpx.AsyncClient,
    origin: str,
    method: str,
    path: str,
    headers: Mapping[str, str],
    sent: Mapping[str, str] | None,
) -> Answer:
    """Follow redirects of a read within the service; what is sent is sent nowhere else."""
    for _ in range(MAX_REDIRECTS + 1):
        answer = await _once(client, f"{origin}{path}", method, headers, sent)
        if answer.status not in (301, 302, 303, 307, 308):
            return answer
        target = answer.headers.get("location", "")
        path = target.removeprefix(origin)
        if method != "GET" or not _PATH.fullmatch(path):
            raise SourceUnavailable(f"{origin}: redirects elsewhere; write the service's own URL")
    raise SourceUnavailable(f"{origin}: redirects more than {MAX_REDIRECTS} times")


async def _once(
    client: httpx.AsyncClient,
    url: str,
    method: str,
    headers: Mapping[str, str],
    sent: Mapping[str, str] | None,
) -> Answer:
    body = bytearray()
    async with client.stream(method, url, headers=dict(headers), json=sent) as answer:
        # Raw: a compressed answer could be small on the wire and fill the memory.
        if answer.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise ParseError(f"{url}: answers compressed although it was asked not to")
        async for chunk in answer.aiter_raw():
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise ParseError(f"{url}: answers with more than {MAX_DOCUMENT_BYTES} bytes")
    return Answer(answer.status_code, answer.headers, bytes(body))


def parse_document(where: str, body: bytes) -> dict[str, Any]:
    """The JSON object of an answer. Raises ParseError."""
    try:
        document = json.loads(body, parse_constant=_refuse_constant, parse_int=_integer)
    except (ValueError, RecursionError):
        raise ParseError(f"{where}: answers with something that is no JSON") from None
    if too_deep(document):
        raise ParseError(f"{where}: answers with JSON that is nested too deeply")
    if not isinstance(document, dict):
        raise ParseError(f"{where}: answers with a JSON {type(document).__name__}, not an object")
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("a number too long")
    return int(text)


def reason(cause: BaseException) -> str:
    """What went wrong with the connection, without the text of any HTTP library."""
    if isinstance(cause, httpx.TimeoutException):
        return "no connection in time"
    for each in chain(cause):
        if isinstance(each, ssl.SSLCertVerificationError):
            text = " ".join(str(each.verify_message or "not trusted").split())
            return f"the certificate is refused: {text[:160]}"
        if isinstance(each, ssl.SSLError):
            return f"TLS fails: {(each.reason or 'no handshake').replace('_', ' ').lower()}"
        if isinstance(each, socket.gaierror):
            return "the host name cannot be resolved"
        if isinstance(each, OSError) and each.errno:
            return os.strerror(each.errno).lower()
    if isinstance(cause, httpx.RemoteProtocolError):
        return "the answer breaks off or is no HTTP"
    if isinstance(cause, (httpx.LocalProtocolError, httpx.InvalidURL)):
        return "the request cannot be sent"
    if isinstance(cause, (httpx.ReadError, httpx.WriteError)):
        return "the connection broke"
    return "no connection" if isinstance(cause, httpx.ConnectError) else type(cause).__name__


def chain(cause: BaseException) -> Iterator[BaseException]:
    """An exception, what it was raised from, and the parts of a group."""
    waiting, seen = [cause], 0
    while waiting and seen < 20:
        each = waiting.pop(0)
        seen += 1
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        waiting += [next_ for next_ in (each.__cause__, each.__context__) if next_ is not None]
