"""How many names a book of samples keeps: those of processes and threads that are gone would add up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def is_finite(part: object) -> bool:
    """Whether what was stored is a number that can be reckoned with."""
    if isinstance(part, bool) or not isinstance(part, int | float):
        return False
    try:
        return math.isfinite(part)
    except OverflowError:  # a whole number that no float holds
        return False


#: A name without a sample for so long belongs to something that is gone; no check rests for as long.
IDLE_S = 6 * 3600.0
#: Below this many names nobody looks for those that are gone: a large node has some five thousand.
FEW = 8192
#: More than these are never kept: the longest idle half goes, and would start with a new baseline.
MOST = 65536


class Room:
    """Says when a book has to be tidied, so that tidying costs little for each new name."""

    def __init__(self) -> None:
        """Nothing has been tidied yet."""
        self._tidy_at = FEW

    def make(self, names: dict[str, T], newest_s: Callable[[T], float], now_s: float) -> None:
        """Drop what has been idle, if there are many names; `newest_s` tells when an entry was last seen."""
        if len(names) < self._tidy_at:
            return
        ages_s = {name: now_s - newest_s(entry) for name, entry in names.items()}
        gone = [name for name, age_s in ages_s.items() if age_s > IDLE_S]
        if len(names) - len(gone) >= MOST:
            gone = sorted(ages_s, key=ages_s.__getitem__, reverse=True)[: len(names) - MOST // 2]
        for name in gone:
            del names[name]
        self._tidy_at = min(MOST, max(FEW, 2 * len(names)))
