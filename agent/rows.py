"""Rows of a table that say the same of several checks or subjects, as one row: a night has few hours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agent.model import WORST_FIRST

Row = tuple[Any, ...]
#: More names than this are counted.
MOST_NAMES = 3
MOST_SUBJECTS = 6
_RANKS = {verdict.value: rank for rank, verdict in enumerate(WORST_FIRST)}
#: gpu3, mlx5_0/1: what stands before the number, the number, what follows.
_NUMBERED = re.compile(r"([^/]*?)(\d{1,9})((?:/.*)?)")
_NEXT_TRY = re.compile(r"; next try in \d+ s")
_HELD = re.compile(r" \(note: [A-Z]+ held for up to [^()]* s\)$")


def natural(subject: str) -> tuple[tuple[int, str | int], ...]:
    """A sort key that puts gpu9 before gpu10."""
    parts = re.split(r"(\d+)", subject)
    return tuple((1, int(part)) if part.isdecimal() else (0, part) for part in parts)


def cause_of(summary: str) -> str:
    """A summary without what is another at each reading."""
    return _NEXT_TRY.sub("", summary)


def reading_of(summary: str) -> str:
    """The cause alone, also without the word that the last verdict is held while serving."""
    return _HELD.sub("", cause_of(summary))


def shared_causes(unknown: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of (check, cause) of missing evidence: what to say of a cause that several checks share.

    It is said instead of where each of them reads: mending one thing mends them all.
    """
    checks: dict[str, set[str]] = {}
    for check, cause in unknown:
        checks.setdefault(cause, set()).add(check)
    return {cause: f"One cause: {cause}" for cause, several in checks.items() if len(several) > 1}


def worst_of(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts by name."""
    return min(verdicts, key=lambda verdict: _RANKS[verdict])


def worst_first(rows: Iterable[Row], verdict: int) -> list[Row]:
    """The rows by the verdict that begins this column; rows of one verdict stay in order."""
    return sorted(rows, key=lambda row: _RANKS.get(str(row[verdict]).partition(" ")[0], -1))


def merge(
    rows: Iterable[Row], column: int, join: Callable[[Sequence[str]], str], *, largest: int | None = None
) -> list[Row]:
    """Rows that differ in one column only, as one row with what `join` makes of that column.

    Column `largest` may differ as well: the merged row has the largest.
    """
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        same = tuple(cell for at, cell in enumerate(row) if at not in (column, largest))
        groups.setdefault(same, []).append(row)
    merged = []
    for group in groups.values():
        cells = list(group[0])
        cells[column] = join(list(dict.fromkeys(str(row[column]) for row in group)))
        if largest is not None:
            cells[largest] = max(row[largest] for row in group)
        merged.append(tuple(cells))
    return merged


def names(several: Sequence[str]) -> str:
    """Ids in a row: all of a few, or the first and how many."""
    if len(several) <= MOST_NAMES:
        return ", ".join(several)
    return f"{', '.join(several[: MOST_NAMES - 1])}, ... ({len(several)} checks)"


def subjects(several: Sequence[str]) -> str:
    """Subjects in a row; three or more numbers without a gap are a range: `gpu0-gpu7`.

    Of many that make no range the first two, the last and how many they are.
    """
    runs: list[list[str]] = []
    for subject in several:
        if runs and _follows(runs[-1][-1], subject):
            runs[-1].append(subject)
        else:
            runs.append([subject])
    said = [each for run in runs for each in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else run)]
    if len(said) > MOST_SUBJECTS:
        said = [*said[:2], f"... {said[-1]} ({len(several)} subjects)"]
    return ", ".join(said)


def _follows(before: str, after: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(after)
    if first is None or second is None or first[1] != second[1] or first[3] != second[3]:
        return False
    return int(second[2]) == int(first[2]) + 1
