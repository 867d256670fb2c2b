"""Sessions of a BMC (DSP0266, 13.3.4): login, token, limit, expiry; and HTTP Basic."""

from __future__ import annotations

import base64
import binascii
import hmac
import itertools
import secrets
import time
from dataclasses import dataclass

from bmc_accounts import Accounts
from bmc_reply import Refusal, Request, message, no_session


@dataclass
class Session:
    id: str
    token: str
    username: str
    used_s: float


class Sessions:
    """The open sessions; an unused one ends after `timeout_s` of our seconds, or when it is made older."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.most, self.timeout_s = 8, 1800.0
        self.basic_auth = True
        self._numbers = itertools.count(1)
        self.open: dict[str, Session] = {}

    def login(self, username: object, password: object) -> Session:
        if (
            not isinstance(username, str)
            or not isinstance(password, str)
            or not self._right(username, password)
        ):
            said = message("ResourceAtUriUnauthorized", "Login failed.", severity="Critical")
            raise Refusal(401, said)
        self.expire()
        if len(self.open) >= self.most:
            words = "The session establishment failed: too many simultaneous sessions."
            raise Refusal(503, message("SessionLimitExceeded", words, severity="Critical"))
        session = Session(str(next(self._numbers)), secrets.token_hex(24), username, time.monotonic())
        self.open[session.id] = session
        return session

    def admit(self, request: Request) -> str:
        """The user of a request. Raises Refusal (401)."""
        token = request.header("x-auth-token")
        if token:
            self.expire()
            for session in self.open.values():
                if hmac.compare_digest(session.token.encode(), token.encode()):
                    session.used_s = time.monotonic()
                    return session.username
            raise no_session()
        user = self._basic(request.header("authorization")) if self.basic_auth else None
        if user is None:
            raise no_session()
        return user

    def age(self, seconds: float) -> None:
        """Let nobody have used them for that long."""
        for session in self.open.values():
            session.used_s -= seconds

    def expire(self, *, all_of_them: bool = False) -> None:
        """End those that nobody used, or all."""
        now_s = time.monotonic()
        for session in list(self.open.values()):
            if all_of_them or now_s - session.used_s >= self.timeout_s:
                del self.open[session.id]

    def _basic(self, header: str) -> str | None:
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            username, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return username if self._right(username, password) else None

    def _right(self, username: str, password: str) -> bool:
        account = self.accounts.find(username)
        return account is not None and hmac.compare_digest(account.password.encode(), password.encode())
