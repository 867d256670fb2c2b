"""The tree of a profile before it is typed: every key and value with the place where it was written.

Layers are merged as trees, so that whatever is wrong with the result can be shown where it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Plain = str | int | float | bool | None
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a layer; `line` and `column` count from 1, line 0 = no file (a profile built by code)."""

    file: str
    line: int
    column: int
    layer: str

    @property
    def where(self) -> str:
        """`file:line`, as every error shows it."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value: `value` as its spelling reads, `text` as it is written; `plain` = without quotes."""

    mark: Mark
    text: str
    value: Plain
    plain: bool = True


@dataclass(frozen=True, slots=True)
class Items:
    """A list; layers replace it whole."""

    mark: Mark
    items: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A map; layers merge it key by key. `marks` holds where each key is written."""

    mark: Mark
    entries: Mapping[str, Node] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)


Node = Scalar | Items | Table


def is_null(node: Node) -> bool:
    """Whether the node is `null`: it takes back what lower layers set."""
    return isinstance(node, Scalar) and node.value is None


def merge(low: Table, high: Table) -> Table:
    """Lay one map over another: maps merge, lists and scalars (`null` too) replace."""
    entries, marks = dict(low.entries), dict(low.marks)
    for key, node in high.entries.items():
        below = entries.get(key)
        if isinstance(below, Table) and isinstance(node, Table):
            node = merge(below, node)
        entries[key] = node
        marks[key] = high.marks[key]
    return Table(high.mark, entries, marks)


def to_plain(node: Node, *, as_text: frozenset[Path] = frozenset(), at: Path = ()) -> object:
    """Python values of a tree: keys that are `null` left out, scalars at `as_text` as they are spelled."""
    if isinstance(node, Scalar):
        return node.text if at in as_text else node.value
    if isinstance(node, Items):
        return [to_plain(item, as_text=as_text, at=(*at, str(i))) for i, item in enumerate(node.items)]
    return {
        key: to_plain(child, as_text=as_text, at=(*at, key))
        for key, child in node.entries.items()
        if not is_null(child)
    }


def child_of(node: Node, step: str) -> Node | None:
    """The entry or item of that name or number."""
    if isinstance(node, Table):
        return node.entries.get(step)
    if isinstance(node, Items) and step.isdecimal() and int(step) < len(node.items):
        return node.items[int(step)]
    return None


def find(node: Node, path: Sequence[str]) -> Node | None:
    """The node at a path, None when it is not there."""
    found: Node | None = node
    for step in path:
        found = child_of(found, step) if found is not None else None
    return found


def path_of(root: Node, dotted: str) -> Path | None:
    """The path of a key written with dots, None when it is not there; a key may hold dots itself."""
    if not dotted:
        return ()
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        step = ".".join(parts[:length])
        child = child_of(root, step)
        rest = path_of(child, ".".join(parts[length:])) if child is not None else None
        if rest is not None:
            return (step, *rest)
    return None


def mark_of(root: Table, path: Sequence[str]) -> Mark:
    """Where the key or item at a path is written; for one that is not, where its nearest parent is."""
    node: Node = root
    mark = root.mark
    for step in path:
        child = child_of(node, step)
        if child is None:
            break
        mark = node.marks[step] if isinstance(node, Table) else child.mark
        node = child
    return mark


def without(node: Node, path: Sequence[str]) -> Node:
    """The tree without what is at a path; with a list item its whole list goes, as numbers would shift."""
    if not path or not isinstance(node, Table) or path[0] not in node.entries:
        return node
    step, rest = path[0], path[1:]
    child = node.entries[step]
    entries = dict(node.entries)
    if not rest or not isinstance(child, Table):
        del entries[step]
    else:
        entries[step] = without(child, rest)
    return Table(node.mark, entries, node.marks)


def from_plain(value: object, mark: Mark) -> Node:
    """A tree of Python values, all at one mark: for a profile that a program builds."""
    if isinstance(value, Mapping):
        entries = {str(key): from_plain(child, mark) for key, child in value.items()}
        return Table(mark, entries, dict.fromkeys(entries, mark))
    if isinstance(value, list | tuple):
        return Items(mark, tuple(from_plain(child, mark) for child in value))
    if value is None or isinstance(value, bool | int | float):
        return Scalar(mark, str(value), value, plain=False)
    return Scalar(mark, str(value), str(value), plain=False)


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every leaf of Python values with its path; an empty map or list is a leaf itself."""
    children: Iterable[tuple[str, object]] = ()
    if isinstance(value, Mapping):
        children = ((str(key), child) for key, child in value.items())
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        children = ((str(i), child) for i, child in enumerate(value))
    empty = True
    for key, child in children:
        empty = False
        yield from leaves(child, (*path, key))
    if empty:
        yield path, value
