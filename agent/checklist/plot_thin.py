"""Points of a curve: stretches without a gap, and fewer points that keep every peak (pure)."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

Point = tuple[float, float]
#: A pause this many times longer than usual is a gap: what was not measured is not drawn.
_GAP_TIMES = 5.0


def stretches(points: Sequence[Point]) -> list[list[Point]]:
    """Sorted points, cut where the time between two of them is far longer than usual."""
    if len(points) < 3:
        return [list(points)] if points else []
    steps_s = [after[0] - before[0] for before, after in itertools.pairwise(points)]
    longest_s = _GAP_TIMES * statistics.median(steps_s)
    parts = [[points[0]]]
    for step_s, point in zip(steps_s, points[1:], strict=True):
        if step_s > longest_s > 0:
            parts.append([])
        parts[-1].append(point)
    return parts


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` (4 or more) of sorted points: both ends, lowest and highest of each stretch between."""
    if len(points) <= most:
        return list(points)
    inner = points[1:-1]
    buckets = max(1, (most - 2) // 2)
    kept = [points[0]]
    for bucket in range(buckets):
        part = inner[bucket * len(inner) // buckets : (bucket + 1) * len(inner) // buckets]
        if part:
            lowest, highest = min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])
            kept += sorted({lowest, highest})
    return [*kept, points[-1]]
