"""How deep JSON data is nested: what is read from others must not take more calls than Python allows."""

from __future__ import annotations

from typing import Any

#: Documents of Redfish and of node folders are some ten levels deep.
DEEPEST = 64


def too_deep(value: Any) -> bool:
    """Whether lists and mappings are nested more than DEEPEST levels."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _parts(outer)]
        if not level:
            return False
    return True


def _parts(value: dict[Any, Any] | list[Any]) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value
    return [part for part in inner if isinstance(part, dict | list)]
