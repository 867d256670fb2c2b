"""Threads that look at a daemon from outside, each a few hundred times a second, and note when what changed.

Times are CLOCK_BOOTTIME seconds, taken after the answer has arrived: what is measured is never too short.
"""

from __future__ import annotations

import http.client
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.002


def now_s() -> float:
    """CLOCK_BOOTTIME, the daemon's own clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Seen:
    """What was seen for the first time at `at_s`: an HTTP code, or a row `check subject raw_verdict`."""

    at_s: float
    what: str


class Watcher:
    """A polling thread; `seen` grows as it looks."""

    def __init__(self, look: Callable[[], list[str]]) -> None:
        """`look` answers what is new since it was last asked."""
        self.seen: list[Seen] = []
        self._look = look
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)

    def first(self, what: str, since_s: float) -> float | None:
        """When something was first seen since a time."""
        return next((seen.at_s for seen in self.seen if seen.at_s >= since_s and what in seen.what), None)

    def all_since(self, since_s: float, until_s: float) -> list[str]:
        """Everything new between two times."""
        return [seen.what for seen in self.seen if since_s <= seen.at_s <= until_s]

    def _run(self) -> None:
        while not self._end.wait(POLL_S):
            new = self._look()
            at_s = now_s()
            self.seen += [Seen(at_s, what) for what in new]


def readyz(port: int, engine: str) -> Callable[[], list[str]]:
    """Changes of the code that /readyz answers; `0` while nobody does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    last = ""

    def look() -> list[str]:
        nonlocal last
        try:
            connection.request("GET", f"/readyz/{engine}")
            answer = connection.getresponse()
            answer.read()
            code = str(answer.status)
        except (OSError, http.client.HTTPException):
            connection.close()
            code = "0"
        changed = code != last
        last = code
        return [code] if changed else []

    return look


def journal(path: Path) -> Callable[[], list[str]]:
    """Committed rows of changed results."""
    last_id = 0

    def look() -> list[str]:
        nonlocal last_id
        if not path.exists():
            return []
        sql = "SELECT id, check_id, subject, raw_verdict FROM changes WHERE id > ? ORDER BY id"
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            rows = connection.execute(sql, (last_id,)).fetchall()
        except sqlite3.OperationalError:  # not yet made, or just being written
            rows = []
        finally:
            connection.close()
        last_id = max([last_id, *(row[0] for row in rows)])
        return [f"{check} {subject} {raw}" for _, check, subject, raw in rows]

    return look
