"""Faults on demand: what a BMC does to a request in place of an answer, to which, how often, how long."""

from __future__ import annotations

import fnmatch
import threading
from dataclasses import dataclass

from bmc_clock import BmcClock

#: Of a connection, before any path is known.
CONNECTION = ("refuse", "drop-handshake")
#: Of a request.
REQUEST = (
    "hang",  # no answer, the connection stays open
    "drop",  # the connection is closed in place of an answer
    "drop-answer",  # the request is carried out and the answer is lost
    "drop-body",  # the connection breaks within the answer's body
    "drip",  # the body comes a byte at a time
    "busy",  # 503 with Retry-After
    "too-many",  # 429 with Retry-After
    "error",  # 500
    "garbage",  # 200 with HTML
    "truncated-json",  # 200 with half of a JSON object, Content-Length fits
    "unauthorized",  # 401; all sessions are gone
    "forbidden",  # 403
    "missing",  # 404
    "stale",  # 412
    "redirect",  # 308 to another host
)


@dataclass
class Fault:
    """One fault. It ends after `requests` of them or at `until_s` (BMC time), whichever comes first."""

    kind: str
    path: str = "*"
    method: str = "*"
    requests: int | None = None
    after: int = 0
    until_s: float | None = None
    retry_after_s: int = 30
    hits: int = 0
    passed: int = 0


class Faults:
    """The faults in force."""

    def __init__(self, clock: BmcClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._all: list[Fault] = []
        self.on_change = lambda: None

    def add(
        self,
        kind: str,
        path: str = "*",
        *,
        method: str = "*",
        requests: int | None = None,
        after: int = 0,
        for_s: float | None = None,
        retry_after_s: int = 30,
    ) -> Fault:
        """`path` and `method` are patterns; the first `after` such requests are spared; `for_s`: BMC time."""
        if kind not in CONNECTION + REQUEST:
            raise ValueError(f"no fault {kind!r}; there are {', '.join(CONNECTION + REQUEST)}")
        until_s = None if for_s is None else self._clock.now_s() + for_s
        fault = Fault(kind, path, method, requests, after, until_s, retry_after_s)
        with self._lock:
            self._all.append(fault)
        self.on_change()
        return fault

    def clear(self) -> None:
        with self._lock:
            self._all.clear()
        self.on_change()

    def pick(self, method: str, path: str) -> Fault | None:
        """The fault that befalls this request; it counts as one of its requests."""
        with self._lock:
            for fault in self._in_force(REQUEST):
                if fnmatch.fnmatchcase(path, fault.path) and fnmatch.fnmatchcase(method, fault.method):
                    if fault.passed < fault.after:
                        fault.passed += 1
                        continue
                    fault.hits += 1
                    return fault
        return None

    def pick_connection(self) -> Fault | None:
        """The fault that befalls a new connection."""
        with self._lock:
            for fault in self._in_force(("drop-handshake",)):
                fault.hits += 1
                return fault
        return None

    def refusing(self) -> bool:
        """Whether nothing listens at all."""
        with self._lock:
            return bool(self._in_force(("refuse",)))

    def _in_force(self, kinds: tuple[str, ...]) -> list[Fault]:
        now_s = self._clock.now_s()
        return [
            fault
            for fault in self._all
            if fault.kind in kinds
            and (fault.requests is None or fault.hits < fault.requests)
            and (fault.until_s is None or now_s < fault.until_s)
        ]
