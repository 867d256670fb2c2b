"""The Redfish client that writes: for BIOS settings, firmware and resets, from the controller.

    with RedfishWriter("https://bmc-17.example", user, password, ca_file="/etc/site/bmc-ca.pem") as bmc:
        document, etag = bmc.get("/redfish/v1/Systems/1/Bios/Settings")

A BMC that is busy, restarts or hangs is waited for within the patience, counted from its last good answer.
A write is repeated only if it certainly was not done, or if its result was read and is not there.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from agent.errors import ParseError, SourceError
from agent.provision import redfish_wire as wire
from agent.provision.redfish_patience import Patience
from agent.provision.redfish_reply import Document, Reply, etag_of, refusal
from agent.provision.redfish_session import BUSY, Session, StillBusy, credentials_of, own_path
from agent.provision.redfish_task import TaskProgress, wait_for_task
from agent.provision.redfish_trust import trust
from agent.provision.redfish_words import Conflict, NotThere, RedfishError, Uncertain, Untrusted
from agent.sources.redfish_http import MAX_REDIRECTS, valid_path
from agent.sources.redfish_loop import LoopThread

REQUEST_S = 30.0
#: A BMC may be busy for five minutes and still be well.
PATIENCE_S = 360.0
CONNECT_S = 15.0
CLOSE_S = 3.0
#: How often a write whose outcome was unknown and that has had no effect is made again.
MAX_WRITES = 3
#: Answers of a service in trouble: a read is repeated, a write may have been done.
BROKEN = frozenset({500, 502, 504})
#: Seconds for which a read that is answered with an error of the service is repeated.
BROKEN_S = 60.0


class RedfishWriter:
    """One service. Not for several threads at once."""

    def __init__(
        self,
        url: str,
        username: str | None = None,
        password: str | None = None,
        *,
        ca_file: str | None = None,
        tls_verify: bool = True,
        request_s: float = REQUEST_S,
        patience_s: float = PATIENCE_S,
        mono_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_wait: Callable[[str], None] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Nothing is asked yet. Raises RedfishError for a URL or CA file that cannot be used.

        `on_wait` is told in one line what is waited for; `transport` takes the place of the network in tests.
        """
        for name in ("httpcore", "httpx"):  # their logs quote headers, the session's token among them
            logging.getLogger(name).setLevel(logging.WARNING)
        self.origin = url.rstrip("/")
        self.mono_s, self.sleep = mono_s, sleep
        self._secret = None if password is None else str(password)
        self._request_s = request_s
        self._patience = Patience(f"BMC {self.origin}", patience_s, mono_s, sleep, on_wait)
        self._login_patience = self._patience
        credentials = credentials_of(f"BMC {self.origin}", username, password)
        context = trust(url, ca_file, tls_verify, has_secret=credentials is not None, used=transport is None)
        self._session = Session(self.origin, credentials, self._send_in_time)
        self._loop = LoopThread()
        self._client = httpx.AsyncClient(
            verify=context,
            transport=transport,
            trust_env=False,
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            # A connection that the service has closed meanwhile makes a write uncertain: only fresh ones
            # are used again.
            limits=httpx.Limits(max_connections=1, keepalive_expiry=3.0),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "OData-Version": "4.0"},
        )

    def __repr__(self) -> str:
        return f"RedfishWriter({self.origin!r})"

    def __enter__(self) -> RedfishWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, cause: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, path: str, *, patience_s: float | None = None) -> Document:
        """The document at a path, and its ETag."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._ask(wire.Request("GET", self._valid(path)), again=True, patience_s=patience_s)
            if answer.status not in (301, 302, 303, 307, 308):
                break
            target = own_path(self.origin, answer.headers.get("location"))
            if target is None or target == path:
                break
            path = target
        if not 200 <= answer.status < 300:
            raise self._refusal("GET", path, answer)
        return Document(answer.document, etag_of(answer))

    def look(self, path: str, *, patience_s: float | None = None) -> Reply:
        """As get(), with status and headers: a task's monitor says by its status whether the task runs."""
        answer = self._ask(wire.Request("GET", self._valid(path)), again=True, patience_s=patience_s)
        if not 200 <= answer.status < 300:
            raise self._refusal("GET", path, answer)
        return self._reply(answer)

    def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        etag: str | None = None,
        *,
        settled: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> Reply:
        """Change a resource that must not have changed since `etag` was read.

        `settled` says of the resource, read again after a broken answer, whether the change is in it: if so
        that is a success, else the change is sent again. Without `settled` a broken answer is Uncertain.
        """
        for _ in range(MAX_WRITES - 1):
            try:
                return self._patch_once(path, body, etag)
            except Uncertain:
                if settled is None:
                    raise
                document, etag = self.get(path)
                if settled(document):
                    return Reply(200, document, etag)
        return self._patch_once(path, body, etag)

    def post(self, path: str, body: Mapping[str, Any], *, again: bool = False) -> Reply:
        """Start an action or make a resource; `again` = doing it twice is harmless."""
        request = wire.Request("POST", self._valid(path), body=dict(body), timeout_s=2 * self._request_s)
        return self._written(request, again=again)

    def post_multipart(
        self,
        path: str,
        parameters: Mapping[str, Any],
        file: Path,
        timeout_s: float,
        *,
        sha256: str | None = None,
    ) -> Reply:
        """Send a file with its UpdateParameters (MultipartHttpPushUri); whole only with that hash."""
        said = json.dumps(parameters)
        request = wire.Request("POST", self._valid(path), {}, None, said, file, sha256, timeout_s)
        return self._written(request, again=False)

    def delete(self, path: str) -> Reply:
        """Remove a resource; one that is gone already is none to complain of."""
        try:
            return self._written(wire.Request("DELETE", self._valid(path)), again=True)
        except NotThere:
            return Reply(404)

    def task_wait(
        self, uri: str, deadline_s: float, on_progress: Callable[[TaskProgress], None] | None = None
    ) -> dict[str, Any]:
        """The final document of a task (or what its monitor gives) that ended well within `deadline_s`.

        Raises TaskFailed, TaskLost (the service no longer knows it) or TaskLate.
        """
        return wait_for_task(self, uri, deadline_s, on_progress)

    def close(self) -> None:
        """End the session, as far as the service answers at once, and drop the connection."""
        ending = self._session.ending(CLOSE_S)
        try:
            if ending is not None:
                self._send(ending)
        except wire.WireError:
            pass  # the session ends by its own time limit; there is nobody left to tell
        finally:
            self._loop.close(self._client.aclose(), CLOSE_S)

    def _patch_once(self, path: str, body: Mapping[str, Any], etag: str | None) -> Reply:
        request = wire.Request("PATCH", self._valid(path), body=dict(body), timeout_s=2 * self._request_s)
        try:
            return self._written(request, etag, again=False)
        except Conflict:
            if etag is None or not etag.startswith("W/"):
                raise
            # Some services send weak ETags and compare strong ones.
            return self._written(request, etag.removeprefix("W/"), again=False)

    def _written(self, request: wire.Request, etag: str | None = None, *, again: bool) -> Reply:
        headers = {"If-Match": etag} if etag else {}
        answer = self._ask(replace(request, headers=headers), again=again)
        if not 200 <= answer.status < 300:
            raise self._refusal(request.method, request.path, answer)
        return self._reply(answer)

    def _reply(self, answer: wire.Answer) -> Reply:
        location = own_path(self.origin, answer.headers.get("location"))
        return Reply(answer.status, answer.document, etag_of(answer), location)

    def _ask(self, request: wire.Request, *, again: bool, patience_s: float | None = None) -> wire.Answer:
        """Ask until there is an answer to go by. Raises RedfishError."""
        patience = self._login_patience = self._patience.of(patience_s)
        request = replace(request, timeout_s=min(request.timeout_s, self._request_s)) if again else request
        while True:
            after_s = limit_s = None
            try:
                answer = self._once(patience.cut(request, whole=request.file is not None))
            except wire.CertificateRefused as cause:
                raise self._untrusted(cause) from None
            except wire.FileChanged as cause:
                remedy = "the upload was cut off; let nothing write to the file, and run the play again"
                raise RedfishError(str(cause), where=str(request.file), remedy=remedy) from None
            except wire.NotSent as cause:
                problem = str(cause)
            except wire.Broken as cause:
                if not again:
                    raise self._uncertain(request, str(cause)) from None
                problem, limit_s = str(cause), BROKEN_S if isinstance(cause, wire.Unusable) else None
            except StillBusy as cause:
                problem, after_s = str(cause), cause.answer.headers.get("retry-after")
            else:
                trouble = self._trouble(request, answer, again=again)
                if trouble is None:
                    self._patience.rewarded()
                    return answer
                problem, after_s, limit_s = trouble
            patience.wait(problem, after_s, limit_s)

    def _trouble(
        self, request: wire.Request, answer: wire.Answer, *, again: bool
    ) -> tuple[str, str | None, float | None] | None:
        """What to wait for, with Retry-After and the most seconds; None for an answer to go by."""
        if answer.status in BUSY:
            return f"HTTP {answer.status}", answer.headers.get("retry-after"), None
        if answer.status not in BROKEN and not answer.garbled and (answer.readable or not again):
            return None
        problem = f"HTTP {answer.status}" if answer.status in BROKEN else "answers with no JSON"
        if not again:
            raise self._uncertain(request, problem)
        return f"{request.path}: {problem}", None, BROKEN_S

    def _once(self, request: wire.Request) -> wire.Answer:
        """Ask once, with a login; a session that has ended is opened again, once."""
        answer = self._send(self._with_login(request))
        if answer.status == 401 and self._session.forget():
            answer = self._send(self._with_login(request))
        return answer

    def _with_login(self, request: wire.Request) -> wire.Request:
        """What fails at the login was not asked yet."""
        try:
            return replace(request, headers={**request.headers, **self._session.headers()})
        except wire.Broken as cause:
            raise wire.NotSent(str(cause)) from None

    def _send_in_time(self, request: wire.Request) -> wire.Answer:
        asked = replace(request, timeout_s=min(request.timeout_s, self._request_s))
        return self._send(self._login_patience.cut(asked, whole=False))

    def _send(self, request: wire.Request) -> wire.Answer:
        try:
            return self._loop.run(wire.send(self._client, self.origin, request), request.timeout_s + 5.0)
        except SourceError as cause:
            raise wire.Late(str(cause)) from None

    def _valid(self, path: str) -> str:
        try:
            return valid_path(path)
        except ParseError as cause:
            raise RedfishError(str(cause), where=f"BMC {self.origin}") from None

    def _untrusted(self, cause: wire.WireError) -> Untrusted:
        remedy = "set nodegate_bmc_ca_file to the CA of this BMC, or give the BMC a certificate for this name"
        return Untrusted(str(cause), where=f"BMC {self.origin}", remedy=remedy)

    def _uncertain(self, request: wire.Request, problem: str) -> Uncertain:
        where = f"{request.method} {self.origin}{request.path}"
        remedy = "it may or may not have been done: run the play again, which reads first"
        return Uncertain(problem, where=where, remedy=remedy)

    def _refusal(self, method: str, path: str, answer: wire.Answer) -> RedfishError:
        if answer.status == 401:
            return self._session.refused()
        return refusal(f"{method} {self.origin}{path}", answer, self._secret)
