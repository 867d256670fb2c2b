"""What was asked of a BMC: every request, without its secrets."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from bmc_reply import Request

_SECRET_HEADERS = ("authorization", "x-auth-token", "cookie")
_READS = ("GET", "HEAD", "OPTIONS")


@dataclass
class Seen:
    """A request as it was; `status` 0 = not answered (hung, dropped), `fault` = what was done to it."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any
    status: int = 0
    fault: str = ""

    @property
    def is_login(self) -> bool:
        return "/SessionService/Sessions" in self.path

    @property
    def writes(self) -> bool:
        """Whether it asked for a change; logging in and out is none."""
        return self.method not in _READS and not self.is_login


@dataclass
class Record:
    """All requests, and whether a secret was where it may not be."""

    secrets: list[str] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, request: Request) -> Seen:
        headers = {
            name: "REDACTED" if name in _SECRET_HEADERS else value for name, value in request.headers.items()
        }
        found = Seen(request.method, request.path, request.query, headers, None)
        found.body = "REDACTED" if found.is_login else _body_of(request)
        with self._lock:
            self.seen.append(found)
            for secret in self.secrets:
                self.leaks += (
                    [f"{request.method}: URL"] if secret in f"{request.path}?{request.query}" else []
                )
                self.leaks += [
                    f"{request.method} {request.path}: header {name}"
                    for name, value in headers.items()
                    if secret in value
                ]
        return found

    def clear(self) -> None:
        with self._lock:
            self.seen.clear()

    def writes(self) -> list[tuple[str, str]]:
        """Method and path of what asked for a change, in order."""
        return [(each.method, each.path) for each in self.seen if each.writes]

    def asked(self, method: str, path: str) -> int:
        """How often."""
        return sum(each.method == method and each.path == path for each in self.seen)


def _body_of(request: Request) -> Any:
    """JSON as an object; of anything else its length."""
    if "json" in request.header("content-type"):
        try:
            return json.loads(request.body)
        except ValueError:
            return f"{len(request.body)} bytes that are no JSON"
    return f"{len(request.body)} bytes" if request.body else None
