"""One HTTP exchange of the Redfish client that writes: bounded in time and size, told without secrets.

Whether a write can have been done: `NotSent` is certain that not, `Broken` does not know.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from agent.errors import SourceError
from agent.sources.redfish_http import MAX_DOCUMENT_BYTES, chain, parse_document, reason

#: Attribute registries are the largest documents; packed ones are bounded when unpacked.
MAX_UNPACKED_BYTES = 4 * MAX_DOCUMENT_BYTES


class WireError(Exception):
    """The exchange failed; its text says how, without any secret."""


class NotSent(WireError):
    """Nothing can have arrived at the service."""


class CertificateRefused(NotSent):
    """The certificate is not that of the service: waiting does not help."""


class Broken(WireError):
    """The request went out and no whole answer came back: it may have been done."""


class Unusable(Broken):
    """A whole answer, or more than one, that cannot be used; it is not likely to get better."""


class Late(Broken):
    """No answer in time."""


class FileChanged(WireError):
    """The file is not the one that was proven; its last block was held back: no whole one has arrived."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent; headers may hold a session token and the body a password, so neither is shown."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Any = field(default=None, repr=False)
    parameters: str | None = None
    file: Path | None = None
    sha256: str | None = None
    timeout_s: float = 30.0


class ProvenFile:
    """A file as it is sent: read once, and its last block only given out if the whole has the right hash.

    So whatever is done to the file after it was proven, no other bytes ever arrive as a whole image.
    """

    def __init__(self, file: BinaryIO, sha256: str | None) -> None:
        """Of a file that has just been opened."""
        self._file, self._sha256 = file, sha256
        self._left = os.fstat(file.fileno()).st_size
        self._digest = hashlib.sha256()

    def fileno(self) -> int:
        """By which its length is found."""
        return self._file.fileno()

    def read(self, most: int) -> bytes:
        """The next block. Raises FileChanged in place of a last one that is not right."""
        block = self._file.read(min(most, self._left))
        self._digest.update(block)
        self._left -= len(block)
        short = self._left > 0 and not block
        if short or (self._left == 0 and self._sha256 not in (None, self._digest.hexdigest())):
            raise FileChanged("has changed after its SHA-256 was proven")
        return block


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; `document` is empty for one without a JSON object."""

    status: int
    headers: httpx.Headers = field(repr=False)
    document: dict[str, Any] = field(repr=False)
    readable: bool = True
    #: It says that all is well, and what it says is no JSON: a proxy or a web page answers.
    garbled: bool = False


async def send(client: httpx.AsyncClient, origin: str, request: Request) -> Answer:
    """Ask once. Raises NotSent or Broken."""
    file: BinaryIO | None = None
    try:
        if request.file is not None:
            file = await asyncio.to_thread(request.file.open, "rb")
        async with asyncio.timeout(request.timeout_s):
            return await _exchange(client, f"{origin}{request.path}", request, file)
    except TimeoutError:
        raise Late(f"no answer in {request.timeout_s:g} s") from None
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.InvalidURL) as cause:
        raise _unsent(cause) from None
    except (httpx.HTTPError, httpx.StreamError, OSError) as cause:
        if file is None and request.file is not None:
            raise NotSent(f"{request.file} cannot be read ({reason(cause)})") from None
        raise Broken(reason(cause)) from None
    finally:
        if file is not None:
            file.close()


def _unsent(cause: BaseException) -> NotSent:
    refused = any(isinstance(each, ssl.SSLCertVerificationError) for each in chain(cause))
    return CertificateRefused(reason(cause)) if refused else NotSent(reason(cause))


async def _exchange(client: httpx.AsyncClient, url: str, request: Request, file: BinaryIO | None) -> Answer:
    how: dict[str, Any] = {"headers": dict(request.headers)}
    if file is not None and request.file is not None:
        # DSP0266, multipart HTTP push: the parameters must come first.
        how["files"] = [
            ("UpdateParameters", (None, request.parameters or "{}", "application/json")),
            ("UpdateFile", (request.file.name, ProvenFile(file, request.sha256), "application/octet-stream")),
        ]
    elif request.body is not None:
        how["json"] = request.body
    body = bytearray()
    async with client.stream(request.method, url, **how) as answer:
        async for chunk in answer.aiter_raw():
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise Unusable(f"answers with more than {MAX_DOCUMENT_BYTES} bytes")
    packed = answer.headers.get("content-encoding", "").lower() == "gzip"
    return _answer(url, answer, _unpacked(bytes(body)) if packed else bytes(body))


def _unpacked(body: bytes) -> bytes:
    """Some BMCs keep their registries packed and send them so whatever they are asked."""
    unpacker = zlib.decompressobj(31)
    try:
        plain = unpacker.decompress(body, MAX_UNPACKED_BYTES)
    except zlib.error:
        raise Unusable("answers with something that is not gzip, and says that it is") from None
    if unpacker.unconsumed_tail:
        raise Unusable(f"answers with more than {MAX_UNPACKED_BYTES} bytes")
    return plain


def _answer(url: str, answer: httpx.Response, body: bytes) -> Answer:
    if not body.strip():
        return Answer(answer.status_code, answer.headers, {}, readable=answer.status_code != 200)
    try:
        return Answer(answer.status_code, answer.headers, parse_document(url, body))
    except SourceError:
        well = 200 <= answer.status_code < 300
        return Answer(answer.status_code, answer.headers, {}, readable=False, garbled=well)
