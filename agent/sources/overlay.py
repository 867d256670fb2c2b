"""Laying values over JSON data, key by key. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.sources.node_model import is_refused


class PathProblem(Exception):
    """A path that cannot be followed; becomes a ConfigError with the place in the file."""


def plain_copy(value: Any) -> Any:
    """A private copy of JSON data."""
    if isinstance(value, dict):
        return {key: plain_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_copy(item) for item in value]
    return value


def merged(state: Any, value: Any) -> Any:
    """The state with a value laid over it; what is no mapping (or is an error) takes the state's place.

    The keys of a list are its indexes. Raises PathProblem for one that the list does not have.
    """
    if not isinstance(value, Mapping) or is_refused(value):
        return plain_copy(value)
    if isinstance(state, list):
        items = {str(i): item for i, item in enumerate(state)}
        changed = merged(items, value)
        if changed.keys() != items.keys():
            raise PathProblem(f"there is no {list(changed)[-1]!r} in this capture")
        return list(changed.values())
    found = dict(state) if isinstance(state, dict) and not is_refused(state) else {}
    for key, item in value.items():
        found[str(key)] = merged(found.get(str(key)), item)
    return found


def touches(value: Any, keys: tuple[str, ...]) -> bool:
    """Whether laying a value over data changes what `keys` lead to."""
    for key in keys:
        if not isinstance(value, Mapping) or is_refused(value):
            return True
        texts = {str(name): item for name, item in value.items()}
        if key not in texts:
            return False
        value = texts[key]
    return True
