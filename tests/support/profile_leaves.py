"""Every leaf of the profile's schema, and another value for one: for tests that go over all fields."""

from __future__ import annotations

import copy
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agent.node_profile import NodeProfile

ANY = "*"


@dataclass(frozen=True)
class Leaf:
    """A field that is no part of its own; `*` stands for an item of a list or a map."""

    path: tuple[str, ...]
    field: FieldInfo

    def __str__(self) -> str:
        return ".".join(self.path)


def leaves(model: type[BaseModel] = NodeProfile, above: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All of them, in the order of the schema."""
    for name, field in model.model_fields.items():
        part, several = _part(field.annotation)
        if part is None:
            yield Leaf((*above, name), field)
        else:
            yield from leaves(part, (*above, name, *((ANY,) if several else ())))


def _part(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The part that a field holds, and whether it holds several; None for a leaf."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    several = typing.get_origin(annotation) in (list, dict)
    for argument in typing.get_args(annotation):
        part, inner = _part(argument)
        if part is not None:
            return part, several or inner
    return None, False


def value_at(data: Any, path: tuple[str, ...]) -> Any:
    """The value in plain data; None where a part on the way is missing. `*` = the first item."""
    for key in path:
        if data is None:
            return None
        if key == ANY:
            items = list(data.values()) if isinstance(data, dict) else data
            data = items[0] if items else None
        else:
            data = data.get(key)
    return data


def with_value(data: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy with another value there. KeyError when there is no such part."""
    result = copy.deepcopy(data)
    at: Any = result
    for key in path[:-1]:
        if key == ANY:
            items = list(at.values()) if isinstance(at, dict) else at
            if not items:
                raise KeyError(".".join(path))
            at = items[0]
        else:
            if at.get(key) is None:
                at[key] = {}
            at = at[key]
    if path[-1] == ANY:
        raise KeyError(".".join(path))
    at[path[-1]] = value
    return result


def other_value(leaf: Leaf, value: Any) -> Any:
    """A value that the schema takes and that is not this one; None when none can be made up."""
    return _other(leaf.field.annotation, leaf.field.metadata, value)


def _other(annotation: Any, metadata: list[Any], value: Any) -> Any:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *more = typing.get_args(annotation)
        return _other(inner, [*metadata, *more], value)
    if origin in (typing.Union, types.UnionType):
        for inner in typing.get_args(annotation):
            if inner is not type(None) and (found := _other(inner, metadata, value)) is not None:
                return found
        return None
    if origin is typing.Literal:
        return next((each for each in typing.get_args(annotation) if each != value), None)
    if annotation is bool:
        return not value
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next(each.value for each in annotation if each.value != value)
    if annotation in (int, float):
        return _number(metadata, value, annotation)
    return None


def _number(metadata: list[Any], value: Any, kind: type) -> Any:
    bounds = {name: getattr(each, name) for each in _flat(metadata) for name in ("ge", "gt", "le", "lt")
              if getattr(each, name, None) is not None}  # fmt: skip
    low, high = bounds.get("ge", bounds.get("gt", 0)), bounds.get("le", bounds.get("lt"))
    for each in ((value or 0) + 1, (value or 0) - 1, low, high):
        if each is None or each == value or each < low or (high is not None and each > high):
            continue
        if (each == low and "gt" in bounds) or (each == high and "lt" in bounds):
            continue
        return kind(each)
    return None


def _flat(metadata: list[Any]) -> Iterator[Any]:
    for each in metadata:
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)
