"""Types of fields in an engine's source, by syntax alone: what scan.py makes kinds and choices of flags from.

Stands alone like scan.py: the standard library only, nothing of the engine is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

#: What a type may be: a plain name, `none`, `many`, `other`, or ("literal", options).
Hint = Any
#: Kind and choices of a flag.
Said = tuple[str, list[str] | None]
_PLAIN = ("bool", "str", "int", "float")
_MANY = ("list", "List", "set", "Set", "Sequence", "tuple", "Tuple")
_OF_FIRST = ("Annotated", "A", "SkipValidation", "Final", "InitVar")


class ScanError(Exception):
    """The source is not where it is expected, or is none."""


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    try:
        if path.exists() and not path.is_file():  # a FIFO would hang
            raise ValueError("it is no plain file")
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, MemoryError, RecursionError) as cause:
        raise ScanError(f"{path} cannot be read: {cause}") from cause


def _outer(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those under `if TYPE_CHECKING:` and `try:`."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try)):
            yield from _outer(node.body)
            yield from _outer(node.orelse)
        else:
            yield node


class Index:
    """The fields of classes, and the names that stand for types, of some files."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.fields: dict[str, dict[str, ast.expr]] = {}
        self.bases: dict[str, list[str]] = {}
        self.names: dict[str, ast.expr] = {}

    def add(self, tree: ast.Module) -> None:
        """Take in one file; what is inside functions makes no flag."""
        for node in _outer(tree.body):
            if isinstance(node, ast.ClassDef):
                self.fields[node.name] = {
                    field.target.id: field.annotation
                    for field in node.body
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                }
                self.bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.names.setdefault(node.targets[0].id, node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.names.setdefault(node.target.id, node.value)

    def field(self, class_name: str, name: str) -> ast.expr | None:
        """The annotation of a field, also an inherited one; None where it is not known."""
        found = self.fields.get(class_name, {}).get(name)
        for base in self.bases.get(class_name, ()) if found is None else ():
            found = self.field(base, name) if base != class_name else None
            if found is not None:
                break
        return found

    def hints(self, node: ast.AST, depth: int = 0) -> set[Hint]:
        """What a type may be: names of plain types, `none`, `many`, `other`, ("literal", options)."""
        if depth > 12:
            return {"other"}
        if isinstance(node, ast.Constant):
            return self._constant(node.value, depth)
        if isinstance(node, ast.BinOp):
            return self.hints(node.left, depth + 1) | self.hints(node.right, depth + 1)
        name = name_of(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(name_of(node.value), node.slice, depth)
        if name in _PLAIN:
            return {name}
        if name in _MANY:
            return {"many"}
        return self.hints(self.names[name], depth + 1) if name in self.names else {"other"}

    def _constant(self, value: object, depth: int) -> set[Hint]:
        if value is None:
            return {"none"}
        try:
            return (
                self.hints(ast.parse(value, mode="eval").body, depth + 1)
                if isinstance(value, str)
                else {"other"}
            )
        except SyntaxError:
            return {"other"}

    def _subscript(self, base: str, inner: ast.expr, depth: int) -> set[Hint]:
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if base == "Literal":
            return self._literal(parts, depth)
        if base in ("Optional", "Union"):
            found = {"none"} if base == "Optional" else set()
            return found.union(*(self.hints(part, depth + 1) for part in parts))
        if base in _OF_FIRST:
            return self.hints(parts[0], depth + 1)
        return {"many"} if base in _MANY else {"other"}

    def _literal(self, parts: list[ast.expr], depth: int) -> set[Hint]:
        """`Literal["a", Other]`, where Other is a Literal too."""
        options: list[object] = []
        for part in parts:
            if isinstance(part, ast.Constant):
                options.append(part.value)
                continue
            for hint in self.hints(part, depth + 1):
                if not isinstance(hint, tuple):
                    return {"other"}
                options += hint[1]
        return {("literal", tuple(options))}


def name_of(node: ast.AST | None) -> str:
    """The last part of a dotted name, empty for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def kind_of(hints: set[Hint]) -> Said:
    """Kind and choices of the flag that vLLM makes of a field with these types."""
    if hints in ({"bool", "str", "none"}, {"bool", "str"}):
        return ("optional" if "none" in hints else "toggle"), None
    if "bool" in hints:
        return "toggle", None
    for hint in hints:
        if isinstance(hint, tuple):
            return "value", None if "str" in hints or len(hints - {"none"}) > 1 else sorted(map(str, hint[1]))
    return ("list" if "many" in hints else "value"), None


def changed(kind: str, choices: list[str] | None, given: Mapping[str, ast.expr | None]) -> Said:
    """Kind and choices after keywords that say it themselves; None stands for a value that is not plain."""
    if "action" in given:
        word = text_of(given["action"])
        known = {"store_true": "switch", "store_false": "switch", "append": "append", "store": "value"}
        custom = "switch" if "StoreTrue" in word else "any"
        kind = "toggle" if word == "BooleanOptionalAction" else known.get(word, custom)
    if "nargs" in given:
        word = text_of(given["nargs"]) if given["nargs"] is not None else "None"
        one = kind if kind == "append" else "value"  # each time one value
        kind = {"?": "optional", "None": one}.get(word, "list")
    if "choices" in given:
        options = given["choices"]
        items = options.elts if isinstance(options, (ast.List, ast.Tuple)) else []
        plain = [str(item.value) for item in items if isinstance(item, ast.Constant)]
        choices = sorted(plain) if plain and len(plain) == len(items) else None
    return kind, choices


def text_of(node: ast.AST | None) -> str:
    """A string, number or name as text; empty for anything else."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return name_of(node) if node is not None else ""
