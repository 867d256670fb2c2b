"""What a worker says: JSON lines among whatever else its libraries print (pure)."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

#: Longest word of another program's that is passed on.
_LONGEST = 300
_OTHER = 200


@dataclass
class Reports:
    """The lines of one worker as they come."""

    #: The last object that says `done`, which is the result.
    done: dict[str, Any] | None = None
    error: str = ""
    #: The newest line that is no report: where a library complains.
    noise: str = ""
    #: The last lines that are no reports, for a program that makes none.
    other: deque[str] = field(default_factory=lambda: deque(maxlen=_OTHER))

    def take(self, lines: list[str]) -> list[dict[str, Any]]:
        """Take some lines; the reports among them, without the result."""
        told = []
        for line in lines:
            report = _object(line)
            if report is None:
                self.noise = clipped(line) or self.noise
                self.other.append(line)
            elif "error" in report:
                self.error = self.error or clipped(str(report["error"]))
            elif "done" in report:
                self.done = report
            else:
                told.append(report)
        return told


def figure(report: dict[str, Any], name: str) -> float | None:
    """A number of a report; None for anything else."""
    value = report.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return None
    return float(value)


def clipped(text: str) -> str:
    """One short line."""
    return " ".join(text.split())[:_LONGEST]


def _object(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
