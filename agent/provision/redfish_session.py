"""Who the Redfish client that writes is for a service: a session where there are sessions, else HTTP Basic.

The root document, which needs no login, says whether there are (`Links.Sessions`). A service that has no room
for another session gets HTTP Basic too.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import ParseError
from agent.provision.redfish_wire import Answer, Broken, Request
from agent.provision.redfish_words import LoginRefused, RedfishError
from agent.sources.redfish_credentials import Credentials
from agent.sources.redfish_http import valid_path

ROOT = "/redfish/v1/"
SESSIONS = "/redfish/v1/SessionService/Sessions"
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
#: The service cannot answer now; what was asked has not been done.
BUSY = frozenset({429, 503})


class StillBusy(Exception):
    """The login was answered with `cannot answer now`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(f"HTTP {answer.status} at login")


class Session:
    """Login state of one service; `ask` sends one request and returns the answer to it."""

    def __init__(
        self, origin: str, credentials: Credentials | None, ask: Callable[[Request], Answer]
    ) -> None:
        """Nothing is asked yet."""
        self._origin = origin
        self._credentials = credentials
        self._ask = ask
        self._token: str | None = None
        self._path: str | None = None
        self._basic = False

    def headers(self) -> dict[str, str]:
        """The headers that a request needs; logs in first if that has not been done."""
        if self._credentials is None:
            return {}
        if self._token is None and not self._basic:
            self._log_in(self._credentials)
        if self._token is not None:
            return {"X-Auth-Token": self._token}
        pair = f"{self._credentials.username}:{self._credentials.password}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def forget(self) -> bool:
        """Drop a session that the service no longer knows; False if there was none to drop."""
        had, self._token, self._path = self._token is not None, None, None
        return had

    def ending(self, timeout_s: float) -> Request | None:
        """The request that ends the session; None if there is none to end."""
        if self._token is None or self._path is None:
            return None
        request = Request("DELETE", self._path, {"X-Auth-Token": self._token}, timeout_s=timeout_s)
        self.forget()
        return request

    def _log_in(self, credentials: Credentials) -> None:
        path = self._sessions()
        if path is None:
            self._basic = True
            return
        sent = {"UserName": credentials.username, "Password": credentials.password}
        answer = self._ask(Request("POST", path, body=sent))
        if answer.status in BUSY:
            raise StillBusy(answer)
        if answer.status in (404, 405, 501) or _no_room(answer.document):
            self._basic = True
        elif answer.status in (400, 401, 403):
            raise self.refused()
        elif answer.status not in (200, 201):
            raise Broken(f"HTTP {answer.status} at login")
        else:
            self._take(answer)

    def refused(self) -> LoginRefused:
        """The error for an account that is not let in."""
        where = f"BMC {self._origin}"
        if self._credentials is None:
            remedy = "set nodegate_bmc_username and nodegate_bmc_password (vault)"
            return LoginRefused("wants a login (HTTP 401)", where=where, remedy=remedy)
        remedy = (
            "correct nodegate_bmc_username and nodegate_bmc_password (vault) before the account is locked"
        )
        return LoginRefused("refuses user and password (HTTP 401)", where=where, remedy=remedy)

    def _sessions(self) -> str | None:
        """Where sessions are made; None for a service that has none."""
        answer = self._ask(Request("GET", ROOT))
        if answer.status in BUSY:
            raise StillBusy(answer)
        if answer.status in (401, 403):
            return SESSIONS  # against the standard the root wants a login: the usual place is tried
        if answer.status != 200 or not answer.readable:
            what = f"HTTP {answer.status}" if answer.status != 200 else "no JSON"
            raise Broken(f"the root document is answered with {what}")
        links = answer.document.get("Links")
        target = links.get("Sessions") if isinstance(links, Mapping) else None
        path = target.get("@odata.id") if isinstance(target, Mapping) else None
        return own_path(self._origin, path)

    def _take(self, answer: Answer) -> None:
        token = answer.headers.get("x-auth-token", "")
        if not _TOKEN.fullmatch(token):
            raise Broken("the login is answered without a usable X-Auth-Token")
        self._token = token
        links = (answer.headers.get("location"), answer.document.get("@odata.id"))
        self._path = next((path for link in links if (path := own_path(self._origin, link))), None)


def credentials_of(where: str, username: object, password: object) -> Credentials | None:
    """What an inventory gives, as text; None for neither. Raises RedfishError for one without the other."""
    given = [None if value is None else str(value) for value in (username, password)]
    if all(given):
        return Credentials(str(given[0]), str(given[1]))
    if any(given):
        missing = "nodegate_bmc_password (vault)" if given[0] else "nodegate_bmc_username"
        raise RedfishError("only one of user and password is given", where=where, remedy=f"set {missing}")
    return None


def own_path(origin: str, link: Any) -> str | None:
    """A link as a path of this service; None for anything else. Its host is not believed, only its path."""
    if not isinstance(link, str):
        return None
    path = link.removeprefix(origin)
    if path.startswith(("http://", "https://")):
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    try:
        return valid_path(path)
    except ParseError:
        return None


def _no_room(document: Mapping[str, Any]) -> bool:
    """Whether a login failed because too many sessions are open."""
    error = document.get("error")
    info = error.get("@Message.ExtendedInfo") if isinstance(error, Mapping) else None
    ids = (
        [each.get("MessageId") for each in info if isinstance(each, Mapping)]
        if isinstance(info, list)
        else []
    )
    return any(isinstance(each, str) and each.endswith("SessionLimitExceeded") for each in ids)
