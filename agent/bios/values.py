"""Values of BIOS attributes: when two are the same, whatever the service writes them as."""

from __future__ import annotations

from typing import Any

Value = str | int | bool


def same(seen: Any, want: Any) -> bool:
    """Whether a value is the wanted one; a number may be written as text, true is no 1."""
    if isinstance(seen, bool) or isinstance(want, bool):
        return str(seen).lower() == str(want).lower()
    return bool(seen == want) or (isinstance(seen, str | int) and str(seen) == str(want))
