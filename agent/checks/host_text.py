"""How the kernel writes what host checks read: words, tables and `[chosen]` values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from agent.errors import ParseError

#: More of a kind than this are counted in a summary.
MOST_LISTED = 4
_CHOSEN = re.compile(r"\[([^\]\s]+)\]")
_MEMINFO = re.compile(r"(?:Node \d+ )?([A-Za-z0-9_()]+):\s+(\d{1,18})(?: kB)?")


def listed(items: Sequence[str], most: int = MOST_LISTED) -> str:
    """`a, b, c`, or the first ones and how many more there are."""
    if len(items) <= most:
        return ", ".join(items)
    return f"{', '.join(items[:most])} and {len(items) - most} more"


def chosen(text: str, path: str) -> str:
    """The value in brackets: `always [madvise] never` is madvise. Raises ParseError."""
    match = _CHOSEN.search(text)
    if match is None:
        raise ParseError(f"/{path} reads {text[:40]!r}, without a value in brackets")
    return match[1]


def meminfo(text: str, path: str) -> dict[str, int]:
    """Values by name in kB or as counts, of /proc/meminfo or a node's meminfo. Raises ParseError."""
    found = {match[1]: int(match[2]) for line in text.splitlines() if (match := _MEMINFO.match(line.strip()))}
    if "MemTotal" not in found:
        raise ParseError(f"/{path} does not say MemTotal")
    return found


def normal_words(value: str | int) -> tuple[str | int, ...]:
    """The words of a kernel setting, numbers as numbers: `4096\\t67108864` is (4096, 67108864)."""
    return tuple(int(word) if re.fullmatch(r"-?\d{1,20}", word) else word for word in str(value).split())


def numbered(names: Iterable[str], prefix: str) -> list[str]:
    """Names like `cpu12` in the order of their numbers."""
    found = [
        (int(name.removeprefix(prefix)), name) for name in names if re.fullmatch(rf"{prefix}\d{{1,5}}", name)
    ]
    return [name for _, name in sorted(found)]
