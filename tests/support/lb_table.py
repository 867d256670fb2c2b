"""The table of the load-balancer scenes: what was lost, and when it was seen."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Row:
    """One line of the table. Seconds count from the fault, `return_s` from its end; None is not seen."""

    front: str
    scene: str
    sent: int
    lost: int
    inside: int
    refused: int
    detection_s: float | None
    ejection_s: float | None
    return_s: float | None
    median_s: float
    slowest_s: float
    note: str


#: Filled by the scenes, shown at the end of the run.
ROWS: list[Row] = []


def table() -> list[str]:
    """The rows as text."""
    head = ("front", "scene", "lost / sent", "inside", "refused", "detected", "ejected", "back", "median",
            "slowest", "note")  # fmt: skip
    rows = [head]
    for row in ROWS:
        times = [_seconds(value) for value in (row.detection_s, row.ejection_s, row.return_s)]
        counts = (f"{row.lost} / {row.sent}", str(row.inside), str(row.refused))
        latency = (f"{row.median_s:.2f} s", f"{row.slowest_s:.2f} s")
        rows.append((row.front, row.scene, *counts, *times, *latency, row.note))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def as_json(**about: Any) -> str:
    """The rows for other programs."""
    return json.dumps({"schema": 1, **about, "scenes": [asdict(row) for row in ROWS]}, indent=1) + "\n"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
