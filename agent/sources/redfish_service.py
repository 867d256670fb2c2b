"""One Redfish service (DSP0266): login, session, cache and rest; all of it runs on the client's event loop.

A session is opened by POST /redfish/v1/SessionService/Sessions and named by X-Auth-Token. A service without
sessions gets HTTP Basic. What does not answer is left alone for a while, longer each time; so is a service
that refuses the password, because many lock the account after a few tries.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from agent.bmc_profile import RedfishEndpoint
from agent.errors import DeviceAbsent, ParseError, SourceError, SourceTimeout, SourceUnavailable
from agent.sources.nvml_cooldown import Cooldown
from agent.sources.redfish_credentials import Credentials
from agent.sources.redfish_http import Answer, Overloaded, Unreachable, exchange, parse_document, valid_path
from agent.sources.redfish_loop import Connections

SESSIONS = "/redfish/v1/SessionService/Sessions"
#: Checks that run at about the same time share a reading; it is never older than this, and less than the ten
#: seconds after which a single pass looks for growth again.
MAX_CACHE_AGE_S = 9.0
MAX_CACHED = 2000
#: First rest in seconds after each kind of failure; it doubles with every further one, to five minutes.
UNREACHABLE_REST_S = 15.0
OVERLOADED_REST_S = 15.0
SLOW_REST_S = 30.0
FORBIDDEN_REST_S = 60.0
REFUSED_REST_S = 300.0
#: A session this young has not expired: a 401 is about the document, and another session would not help.
YOUNG_SESSION_S = 30.0
#: Documents in a row that have not come in time before the whole service is left alone.
SLOW_IN_A_ROW = 2
#: Why the whole service is left alone; a single document's rest has the name of its path.
_WHOLE_SERVICE = LOGIN, CONNECT, BUSY, SLOW = "login", "connect", "busy", "slow"
#: A document that was cut off after less than this share of the deadline is not called slow.
FAIR_SHARE = 0.5
#: Share of the deadline that connecting may take.
CONNECT_SHARE = 0.9
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


class LoginRefused(SourceUnavailable):
    """The service knows the account and will not let it in."""


class RedfishService:
    """One service with one session. Requests go one at a time: a BMC is a slow machine."""

    def __init__(self, endpoint: RedfishEndpoint, mono_s: Callable[[], float]) -> None:
        """Nothing is connected yet."""
        self.endpoint = endpoint
        self._origin = endpoint.url.rstrip("/")
        self._mono_s = mono_s
        self._lock = asyncio.Lock()
        self._rests = Cooldown(mono_s)
        self._cache: dict[str, tuple[float, dict[str, Any]]] = {}
        self._client: httpx.AsyncClient | None = None
        self._connections = Connections()
        self._context: ssl.SSLContext | bool = False
        self._credentials: Credentials | None = None
        self._token: str | None = None
        self._session: str | None = None
        self._session_s = 0.0
        self._closed = False
        self._basic = False
        self._slow_in_a_row = 0

    async def get(
        self, path: str, credentials: Credentials | None, context: ssl.SSLContext | bool
    ) -> dict[str, Any]:
        """The document at a path, within the endpoint's deadline in all. Raises SourceError."""
        valid_path(path)
        asked, began_s = False, asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self.endpoint.deadline_s), self._lock:
                if self._closed:
                    raise self._gone()
                known = self._cached(path)
                if known is not None:
                    return known
                await self._use(credentials, context)
                self._refuse_at_rest(path)
                asked, began_s = True, asyncio.get_running_loop().time()
                with self._connections.noting():
                    document = await self._document(path)
        except TimeoutError:
            late = SourceTimeout(f"{self._origin}{path}: no answer in {self.endpoint.deadline_s:g} s")
            took_s = asyncio.get_running_loop().time() - began_s
            # Waiting for one's turn behind a document that hangs leaves too little time to judge this one.
            if asked and took_s >= FAIR_SHARE * self.endpoint.deadline_s:
                self._too_slow(path, late)
            raise late from None
        except SourceError as cause:
            if asked:
                self._failed(cause)
            raise
        self._worked(path, document)
        return document

    async def close(self) -> None:
        """End the session, if the service can be reached at all, and drop the connection."""
        self._closed = True
        try:
            resting = any(self._rests.why_not(name) for name in _WHOLE_SERVICE)
            if self._client and self._token and self._session and not resting:
                headers = {"X-Auth-Token": self._token}
                await exchange(self._client, self._origin, "DELETE", self._session, headers)
        except SourceError:
            pass  # the session ends by its own time limit; there is nobody left to tell
        finally:
            self._token = None
            await self._drop_connection()
            self._connections.cut()

    def _cached(self, path: str) -> dict[str, Any] | None:
        found = self._cache.get(path)
        return found[1] if found and 0 <= self._mono_s() - found[0] <= MAX_CACHE_AGE_S else None

    async def _use(self, credentials: Credentials | None, context: ssl.SSLContext | bool) -> None:
        """Take over what the files say now: a corrected password or CA is tried at once."""
        if credentials != self._credentials:
            self._credentials, self._token, self._basic = credentials, None, False
            self._rests.worked(LOGIN)
        if self._client is None or context is not self._context:
            await self._drop_connection()
            self._context = context
            self._rests.worked(CONNECT)
            self._client = httpx.AsyncClient(
                verify=context,
                trust_env=False,
                # The deadline of get() bounds all of it. Connecting has its own, so that a service which
                # cannot be reached is told from a document that is slow.
                timeout=httpx.Timeout(None, connect=CONNECT_SHARE * self.endpoint.deadline_s),
                limits=httpx.Limits(max_connections=1, keepalive_expiry=30.0),
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "OData-Version": "4.0"},
            )

    async def _drop_connection(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _refuse_at_rest(self, path: str) -> None:
        for name in (*_WHOLE_SERVICE, path):
            resting = self._rests.why_not(name)
            if resting is not None:
                raise resting

    async def _document(self, path: str) -> dict[str, Any]:
        """Read a document; a session that has ended is opened again, once."""
        had_session = self._token is not None and self._mono_s() - self._session_s >= YOUNG_SESSION_S
        answer = await self._ask(path)
        if answer.status == 401 and had_session:
            self._token = None
            answer = await self._ask(path)
        where = f"{self._origin}{path}"
        if answer.status == 200:
            return parse_document(where, answer.body)
        if answer.status in (404, 410):
            raise DeviceAbsent(f"{where}: not there")
        if answer.status in (401, 403):
            raise self._no_access(path, answer.status)
        if answer.status in (429, 503):
            raise Overloaded(f"{where}: HTTP {answer.status}, cannot answer now")
        raise SourceUnavailable(f"{where}: HTTP {answer.status}")

    def _no_access(self, path: str, status: int) -> SourceError:
        where = f"{self._origin}{path}"
        if self._credentials is None:
            return SourceUnavailable(f"{where}: HTTP {status}; set credentials_file of this service")
        if self._basic and status == 401:
            return LoginRefused(f"{self._origin}: refuses user and password of the credentials file")
        refused = SourceUnavailable(f"{where}: HTTP {status}; the account may not read this")
        if status == 401:  # each further try could cost another session, and a service has few
            self._rests.failed(path, refused, FORBIDDEN_REST_S)
        return refused

    def _gone(self) -> SourceError:
        return SourceUnavailable(f"{self._origin}: the profile names another service now, or none")

    async def _ask(self, path: str) -> Answer:
        if self._credentials is not None and self._token is None and not self._basic:
            await self._log_in(self._credentials)
        if self._client is None:  # closed meanwhile
            raise self._gone()
        return await exchange(self._client, self._origin, "GET", path, self._headers())

    def _headers(self) -> dict[str, str]:
        if self._token is not None:
            return {"X-Auth-Token": self._token}
        if self._basic and self._credentials is not None:
            pair = f"{self._credentials.username}:{self._credentials.password}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}

    async def _log_in(self, credentials: Credentials) -> None:
        assert self._client is not None
        sent = {"UserName": credentials.username, "Password": credentials.password}
        answer = await exchange(self._client, self._origin, "POST", SESSIONS, {}, sent)
        if answer.status in (404, 405, 501):
            self._basic = True
        elif answer.status in (400, 401, 403):
            raise LoginRefused(f"{self._origin}: refuses user and password of the credentials file")
        elif answer.status in (429, 503):
            raise Overloaded(f"{self._origin}: login: HTTP {answer.status}, cannot answer now")
        elif answer.status not in (200, 201):
            raise Unreachable(f"{self._origin}: login: HTTP {answer.status}")
        else:
            self._take_session(answer)

    def _take_session(self, answer: Answer) -> None:
        token = answer.headers.get("x-auth-token", "")
        if not _TOKEN.fullmatch(token):
            raise ParseError(f"{self._origin}: login: the answer has no usable X-Auth-Token")
        self._token = token
        self._session, self._session_s = _session_path(self._origin, answer), self._mono_s()

    def _worked(self, path: str, document: dict[str, Any]) -> None:
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[path] = (self._mono_s(), document)
        self._slow_in_a_row = 0
        for name in (*_WHOLE_SERVICE, path):
            self._rests.worked(name)

    def _failed(self, cause: SourceError) -> None:
        """Rest after what concerns the whole service; one bad document is its own affair."""
        if isinstance(cause, LoginRefused):
            self._rests.failed(LOGIN, cause, REFUSED_REST_S)
        elif isinstance(cause, Unreachable):
            self._rests.failed(CONNECT, _plain(cause), UNREACHABLE_REST_S)
        elif isinstance(cause, Overloaded):
            self._rests.failed(BUSY, _plain(cause), OVERLOADED_REST_S)

    def _too_slow(self, path: str, late: SourceTimeout) -> None:
        self._slow_in_a_row += 1
        self._rests.failed(path, late, SLOW_REST_S)
        if self._slow_in_a_row >= SLOW_IN_A_ROW:
            self._rests.failed(SLOW, late, SLOW_REST_S)


def _plain(cause: SourceError) -> SourceError:
    return SourceUnavailable(str(cause))


def _session_path(origin: str, answer: Answer) -> str | None:
    """Where the session can be ended: the Location header, else the document's own link; None if neither."""
    links: list[Any] = [answer.headers.get("location", "").removeprefix(origin)]
    try:
        document: Mapping[str, Any] = parse_document(origin, answer.body)
        links.append(document.get("@odata.id"))
    except ParseError:
        pass  # the header may be enough, and a session that cannot be named ends by itself
    for link in links:
        if isinstance(link, str) and link.startswith("/redfish/v1/"):
            try:
                return valid_path(link)
            except ParseError:
                continue
    return None
