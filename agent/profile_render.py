"""A resolved profile as YAML that loads back to the same profile, and the differences of two profiles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from agent.node_profile import NodeProfile
from agent.profile_loader import LoadedProfile
from agent.profile_tree import Mark, Path, Table, find, is_null, leaves, mark_of
from agent.profile_yaml import resolve

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
#: Words that YAML 1.1 readers (Ansible's too) take for booleans.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_COMMENT_COLUMN = 48


class Absent(Enum):
    """The side of a difference that does not have the leaf at all."""

    ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Change:
    """A leaf that differs, with both values."""

    path: str
    old: object
    new: object

    def __str__(self) -> str:
        """One line: path: old -> new."""
        old, new = (side.value if isinstance(side, Absent) else flow(side) for side in (self.old, self.new))
        return f"{self.path}: {old} -> {new}"

    def to_json(self) -> dict[str, object]:
        """A JSON object; a side that does not have the leaf is left out."""
        sides = {"old": self.old, "new": self.new}
        return {"path": self.path, **{k: v for k, v in sides.items() if not isinstance(v, Absent)}}


def render(loaded: LoadedProfile, tree: Table | None = None) -> str:
    """The whole profile as YAML, defaults included; with its tree each leaf names the layer it came from."""
    lines = [f"# layers: {' <- '.join(loaded.layers)}", f"# hash: {loaded.hash}"]
    taken_back = loaded.tree or Table(Mark("", 0, 0, ""))
    for text, origin in _block(loaded.profile.model_dump(mode="json"), (), taken_back):
        shown = origin if tree else ""
        lines.append(f"{text:<{_COMMENT_COLUMN}} # {shown}" if shown else text)
    return "\n".join(lines) + "\n"


def differences(old: NodeProfile, new: NodeProfile) -> list[Change]:
    """The leaves that differ, in the order of the schema; lists of maps item by item."""
    before, after = (dict(leaves(profile.model_dump(mode="json"))) for profile in (old, new))
    changes = [
        Change(".".join(path), before.get(path, Absent.ABSENT), after.get(path, Absent.ABSENT))
        for path in dict.fromkeys([*before, *after])
    ]
    return [change for change in changes if repr(change.old) != repr(change.new)]


def flow(value: object) -> str:
    """A value on one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))}: {flow(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    return str(value) if isinstance(value, int) else _text(str(value))


def _block(value: Mapping[str, object], path: Path, tree: Table) -> Iterator[tuple[str, str]]:
    """Lines of a map with the origin of each leaf.

    A key that is taken back from a lower layer is written as null: the layers are there again when this is
    loaded, and would set it.
    """
    indent = "  " * len(path)
    for key, child in value.items():
        at = (*path, str(key))
        start = f"{indent}{_key(str(key))}:"
        origin = _origin(tree, at)
        if isinstance(child, Mapping) and not child and _is_unset(tree, at):
            yield f"{start} null", origin
        elif isinstance(child, Mapping) and (child or _taken_back(tree, at)):
            yield start, ""
            yield from _block(child, at, tree)
        elif isinstance(child, list) and any(isinstance(item, Mapping) for item in child):
            yield start, origin
            for item in child:
                yield f"{indent}  - {flow(item)}", ""
        else:
            yield f"{start} {flow(child)}", origin
    for key in _taken_back(tree, path):
        if key not in value:
            yield f"{indent}{_key(key)}: null", _origin(tree, (*path, key))


def _is_unset(tree: Table, path: Path) -> bool:
    """Whether the key is there and is null."""
    node = find(tree, path)
    return node is not None and is_null(node)


def _taken_back(tree: Table, path: Path) -> list[str]:
    """The keys of a map that are null."""
    node = find(tree, path)
    return [key for key, child in node.entries.items() if is_null(child)] if isinstance(node, Table) else []


def _origin(tree: Table, path: Path) -> str:
    """The layer and line that a leaf came from."""
    node = find(tree, path)
    if node is None:
        return "default"
    mark = mark_of(tree, path)
    place = f"{mark.layer}:{mark.line}" if mark.line else mark.layer
    return f"default, unset by {place}" if is_null(node) else place


def _float(value: float) -> str:
    """A number that YAML 1.1 readers take for a float too: those want a dot in the mantissa."""
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return text if "." in mantissa or not e else f"{mantissa}.0e{exponent}"


def _key(key: str) -> str:
    """A key; digits stay bare, for they are GPU slots."""
    return key if _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS else _quoted(key)


def _text(text: str) -> str:
    """Text, quoted whenever any reader could take it for something else."""
    plain = _PLAIN.fullmatch(text) and isinstance(resolve(text), str) and text.lower() not in _WORDS
    return text if plain else _quoted(text)


def _quoted(text: str) -> str:
    """Double-quoted YAML; everything that does not print is an escape."""
    return '"' + "".join(_escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable() and char != "\ufeff":
        return char
    code = ord(char)
    if code > 0xFFFF:
        return f"\\U{code:08X}"
    return f"\\u{code:04X}" if code > 0xFF else f"\\x{code:02X}"
