"""Faults of a merged profile tree as one line each: `file:line: problem; remedy`.

pydantic says what is wrong and at which path; here that becomes the place in the layer where it was written,
words that name the unit, and the key that was probably meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from agent.errors import ConfigError
from agent.profile_tree import Items, Node, Path, Scalar, Table, find, is_null, mark_of
from agent.profile_units import same_but_unit, split_unit, unit_of
from agent.profile_yaml import clean

_NUMBER = frozenset(
    {"float_type", "float_parsing", "int_type", "int_parsing", "int_from_float", "finite_number"}
)
_SHAPE = {
    **dict.fromkeys(("model_type", "dict_type"), "a map of keys"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "a list"),
    "string_type": "text",
}
_SLOT = re.compile(r"0|[1-9][0-9]{0,3}")
#: Words and spellings that YAML 1.1 reads as boolean or number and YAML 1.2 does not (or differently).
_BOOLEAN_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})


def path_of(error: ErrorDetails) -> Path:
    """The path of a pydantic error; `[key]` says that the key itself is wrong and is left out."""
    return tuple(str(step) for step in error["loc"] if step != "[key]")


def wants_text(error: ErrorDetails, root: Node) -> bool:
    """Whether an unquoted number or boolean stands where text is wanted: its spelling is the text."""
    node = find(root, path_of(error))
    return (
        error["type"] == "string_type" and isinstance(node, Scalar) and node.plain and node.value is not None
    )


def fault(error: ErrorDetails, root: Table, model: type[BaseModel], prefix: Path = ()) -> ConfigError:
    """The line for one pydantic error of `model`, whose data is at `prefix` of the tree."""
    inner = path_of(error)
    path = (*prefix, *inner)
    problem, remedy = _words(error, root, model, inner, prefix)
    shown = clean(".".join(path), 120) or "the profile"
    return ConfigError(f"{shown}: {problem}", where=mark_of(root, path).where, remedy=remedy)


def _words(
    error: ErrorDetails, root: Table, model: type[BaseModel], inner: Path, prefix: Path
) -> tuple[str, str | None]:
    """Problem and remedy of one error."""
    kind = error["type"]
    node = find(root, (*prefix, *inner))
    if kind == "extra_forbidden":
        return _unknown_key(inner[-1], sorted(_model_at(model, inner[:-1]).model_fields))
    if kind == "missing":
        was_unset = node is not None and is_null(node)
        problem = "is unset (null), but it has no default" if was_unset else "is missing"
        return problem, f"write it: {_meaning(model, inner)}"
    if "[key]" in error["loc"]:
        return _bad_key(error, clean(inner[-1]), inner[-2] == "flags"), None
    if kind == "bool_type":
        return _not_boolean(node), "write true or false"
    if kind in _NUMBER:
        return _not_number(error, node, inner, model)
    if kind in _SHAPE:
        remedy = _as_list(node) if _SHAPE[kind] == "a list" else None
        return f"must be {_SHAPE[kind]}, not {_shown(node)}", remedy or _meaning(model, inner)
    if kind in ("literal_error", "enum"):
        return _not_one_of(error, node)
    if kind == "string_pattern_mismatch" and inner[-1] == "uuid":
        return (
            f"{_shown(node)} is not a full GPU UUID",
            "copy it from `nvidia-smi -L` (GPU-8-4-4-4-12 hex digits)",
        )
    if kind == "string_pattern_mismatch":
        return f"{_shown(node)} does not have the form that is asked for", _meaning(model, inner)
    message = clean(str(error["msg"]), 160).removeprefix("Input should be ").removeprefix("Value error, ")
    return f"{_shown(node)}: must be {message}" if "Input" in str(error["msg"]) else message, _meaning(
        model, inner
    )


def _as_list(node: Node | None) -> str | None:
    """How to write the words of a text as a list; None for what needs more thought than that."""
    words = node.text.split() if isinstance(node, Scalar) else []
    plain = len(words) > 1 and all(re.fullmatch(r"[\w./=-]*[A-Za-z][\w./=-]*", word) for word in words)
    return f"write [{', '.join(words)}]" if plain else None


def _unknown_key(key: str, fields: list[str]) -> tuple[str, str]:
    """An unknown key with the one that was meant."""
    meant = same_but_unit(key, fields)
    if meant:
        return f"unknown key; the unit of this value is {unit_of(meant)}", f"write {meant}"
    near = difflib.get_close_matches(key, fields, 1, 0.6)
    if near:
        return "unknown key", f"did you mean {near[0]}?"
    return "unknown key", f"keys here: {', '.join(fields)}" if fields else "there are no keys here"


def _bad_key(error: ErrorDetails, key: str, is_flag: bool) -> str:
    """A key of a map that does not fit: a slot that is no number, a name with odd characters."""
    if is_flag:
        meant = key.lstrip("-").replace("_", "-").lower()
        return f"`{key}` is not a flag's name as a profile has it; write it without --, with - for _: {meant}"
    if error["type"] == "string_pattern_mismatch":
        return f"`{key}` must be lower-case letters, digits, - and _, at most 63, a letter or digit first"
    return f"`{key}` must be a GPU slot: a number from 0 to 63"


def _not_boolean(node: Node | None) -> str:
    """A boolean that is none; words that only YAML 1.1 reads as one are named."""
    if isinstance(node, Scalar) and node.plain and node.text.lower() in _BOOLEAN_WORDS:
        return f"`{node.text}` is a boolean in some versions of YAML and text in others"
    return f"{_shown(node)} is not a boolean"


def _not_number(
    error: ErrorDetails, node: Node | None, inner: Path, model: type[BaseModel]
) -> tuple[str, str]:
    """A number that is none: with its unit, in a spelling that YAML versions disagree on, or plainly not."""
    unit = unit_of(_field_name(inner))
    whole = "whole number" if error["type"].startswith("int") else "number"
    remedy = f"write the {whole} alone, in {unit}" if unit else f"write a {whole}: {_meaning(model, inner)}"
    text = node.text if isinstance(node, Scalar) else ""
    split = split_unit(text)
    if split and not text.startswith(("0x", "0o", "0b")):
        if unit and split[1].lower() in (unit.lower(), unit.lower().replace("/", "p")):
            return (
                f"{_shown(node)} has its unit in the value",
                f"write {split[0]}, the unit ({unit}) is in the name",
            )
        wrong = (
            f"{_shown(node)} is in {split[1]}, this value is in {unit}"
            if unit
            else f"{_shown(node)} has a unit"
        )
        return wrong, remedy
    if isinstance(node, Scalar) and not node.plain:
        return f"{_shown(node)} is text, not a {whole}", "remove the quotes" if text.strip() else remedy
    if text[:1].isdigit() and text.replace("_", "").replace(":", "").isalnum() and not text.isdecimal():
        return (
            f"{_shown(node)} is read as different numbers by YAML versions",
            "write it in plain decimal digits",
        )
    if len(text) > 1 and text.isdecimal() and text[0] == "0":
        return (
            f"{_shown(node)} is octal in some versions of YAML and decimal in others",
            "remove the leading zero",
        )
    return f"{_shown(node)} is not a {whole}", remedy


def _not_one_of(error: ErrorDetails, node: Node | None) -> tuple[str, str]:
    """A value that is none of the allowed ones."""
    allowed = str(error.get("ctx", {}).get("expected", "")).replace("'", "")
    text = node.text if isinstance(node, Scalar) else ""
    near = difflib.get_close_matches(text, allowed.replace(" or ", ", ").split(", "), 1, 0.6)
    return f"{_shown(node)} is not allowed", f"did you mean {near[0]}?" if near else f"write {allowed}"


def _shown(node: Node | None) -> str:
    """A value as an error shows it."""
    if isinstance(node, Scalar):
        return "null" if node.value is None else f"`{clean(node.text)}`"
    return "a list" if isinstance(node, Items) else "a map" if isinstance(node, Table) else "nothing"


def _field_name(inner: Path) -> str:
    """The field that a path is in: the last step that is no number."""
    return next((step for step in reversed(inner) if not step.isdecimal()), "")


def _model_at(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel]:
    """The model that describes the map at a path."""
    found = _type_at(model, path)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else BaseModel


def _type_at(model: type[BaseModel], path: Sequence[str]) -> Any:
    """The declared type at a path, Any when the path leaves the schema."""
    current: Any = model
    for step in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(step)
            current = field.annotation if field else Any
        else:
            inner = [a for a in get_args(current) if a is not NoneType]
            current = inner[-1] if get_origin(current) in (dict, list) and inner else Any
        current = _bare(current)
    return current


def _bare(annotation: Any) -> Any:
    """A type without Annotated and without `| None`."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not NoneType]
        annotation = parts[0]
    return annotation


def _meaning(model: type[BaseModel], inner: Path) -> str:
    """The description of the field at a path."""
    for end in range(len(inner), 0, -1):
        field = _model_at(model, inner[: end - 1]).model_fields.get(inner[end - 1])
        if field is not None:
            return field.description or inner[end - 1]
    return model.__doc__.splitlines()[0] if model.__doc__ else model.__name__


def slot_key_faults(root: Table, known: Sequence[Path]) -> list[ConfigError]:
    """Slots that are not spelled in plain decimal digits: `00` would silently be the same slot as `0`."""
    faults = []
    for part in ("pins", "numa_node"):
        node = find(root, ("gpus", part))
        for key in node.entries if isinstance(node, Table) else ():
            path = ("gpus", part, key)
            if path not in known and not _SLOT.fullmatch(key):
                problem = (
                    f"gpus.{part}.{clean(key)}: `{clean(key)}` must be a GPU slot: a number from 0 to 63"
                )
                faults.append(
                    ConfigError(problem, where=mark_of(root, path).where, remedy="write it in plain digits")
                )
    return faults
