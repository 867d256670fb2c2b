"""Reads an engine's flags and environment variables from its source, by syntax alone; writes them as JSON.

It stands alone with scan_types.py: the standard library only, Python 3.10 and later, nothing of the engine is
imported. nodegate runs it itself for an engine on the host; inside an image the text of both files is run by
`python3 -c`, see scan_source.py.

A flag is one of these kinds: `toggle` (--x and --no-x), `switch` (--x), `value`, `append` (a value, may be
given again), `optional` (a value or none), `list` (one or more), `any` (the source does not say it
plainly, so nothing is claimed).
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from agent.launch.lint.scan_types import Index, ScanError, changed, kind_of, name_of, parsed, text_of

#: Where `vllm serve` defines its own arguments; the path has moved with versions.
VLLM_SERVE = (
    "entrypoints/launchers/cli_args.py",
    "entrypoints/common/cli_args.py",
    "entrypoints/openai/cli_args.py",
)
VLLM_ENGINE = "engine/arg_utils.py"
SGLANG_SERVE = "srt/server_args.py"
#: Flags by their first long name: kind, also (its other names), choices, deprecated (the words, or empty),
#: number (int or float where its value must be one, else empty).
Flags = dict[str, dict[str, Any]]
#: Kind, choices, and whether the source says them plainly.
Plainly = tuple[str, list[str] | None, bool]
_PLAINLY_A_VALUE: Plainly = ("value", None, True)
_ENV_NAME = re.compile(r"(?:VLLM|SGLANG|SGL)_[A-Z0-9_]+")
_NUMBERED = re.compile(r"[a-z_]+-(\d[^-]*)\.dist-info")


class Arguments:
    """The arguments that one file adds to its parser."""

    def __init__(self, tree: ast.Module, index: Index) -> None:
        """The tree to look at, and the classes that its flags are made of."""
        self.tree, self.index = tree, index
        self.sources: dict[str, str] = {}
        self.picked: dict[str, ast.Subscript] = {}
        self.touched: dict[str, dict[str, ast.expr | None]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assigned(node.targets[0].id, node.value)
            self._changed(node)

    def _assigned(self, name: str, value: ast.expr) -> None:
        """`x = get_kwargs(SomeConfig)`, `y = x["field"]`."""
        inner = value.value if isinstance(value, ast.Subscript) else value
        if isinstance(inner, ast.Call) and name_of(inner.func) == "get_kwargs" and inner.args:
            self.sources.setdefault(name, name_of(inner.args[0]))
        elif isinstance(value, ast.Subscript):
            self.picked.setdefault(name, value)

    def _changed(self, node: ast.AST) -> None:
        """`x["field"]["nargs"] = ...`, `del x["field"]["nargs"]`, `x["field"]["choices"].remove(...)`."""
        targets: list[ast.expr] = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value]
        for target in targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Subscript):
                field, key = target.value.slice, target.slice
                if isinstance(field, ast.Constant) and isinstance(key, ast.Constant):
                    value = node.value if isinstance(node, ast.Assign) else None
                    self.touched.setdefault(str(field.value), {})[str(key.value)] = value

    def flags(self) -> Flags:
        """What each `add_argument` with names in plain text says."""
        found: Flags = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and name_of(node.func) == "add_argument":
                names = [
                    a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
                ]
                if names and all(name.startswith("-") for name in names):
                    kind, choices, deprecated = self._said(node.keywords)
                    put(found, names, kind, choices, deprecated, self._number(node.keywords))
        return found

    def _said(self, keywords: list[ast.keyword]) -> tuple[str, list[str] | None, str]:
        given = {keyword.arg: keyword.value for keyword in keywords if keyword.arg}
        kind, choices, known = _PLAINLY_A_VALUE
        for keyword in keywords:
            if keyword.arg is None:
                kind, choices, known = self._spread(keyword.value)
        if not known and not {"action", "nargs"} & set(given):
            kind, choices = "any", None
        kind, choices = changed(kind, choices, given)
        help_text = given.get("help")
        if isinstance(help_text, ast.Name):
            help_text = self.index.names.get(help_text.id, help_text)
        words = text_of(help_text)
        old = "deprecated" in given or text_of(given.get("action")).startswith("Deprecated")
        return kind, choices, words if old or "eprecated" in words[:60] else ""

    def _spread(self, node: ast.AST) -> Plainly:
        field = self._field_of(node)
        return self.of_field(*field) if field is not None else ("any", None, False)

    def _field_of(self, node: ast.AST) -> tuple[str, str] | None:
        """Class and field of `**x["field"]`, `**{**x["field"], ...}`, `**y`."""
        if isinstance(node, ast.Dict):
            inner = [value for key, value in zip(node.keys, node.values) if key is None]  # noqa: B905
            return self._field_of(inner[0]) if inner else None
        if isinstance(node, ast.Name) and node.id in self.picked:
            node = self.picked[node.id]
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return self.sources.get(name_of(node.value), ""), str(node.slice.value)
        return None

    def _number(self, keywords: list[ast.keyword]) -> str:
        """Which number the value must be: as `type=int` says, or the type of its field."""
        given = {keyword.arg: keyword.value for keyword in keywords if keyword.arg}
        if "type" in given:
            word = name_of(given["type"])
            return word if word in ("int", "float") else ""
        spread = [field for k in keywords if k.arg is None and (field := self._field_of(k.value))]
        return (
            self.number_of(*spread[0]) if spread and not {"action", "nargs", "choices"} & set(given) else ""
        )

    def number_of(self, class_name: str, field: str) -> str:
        """The same of a field whose flag is made of its type alone."""
        annotation = self.index.field(class_name, field)
        if annotation is None or {"type", "action", "nargs", "choices"} & set(self.touched.get(field, {})):
            return ""
        hints = self.index.hints(annotation) - {"none"}
        return "int" if hints == {"int"} else "float" if hints in ({"float"}, {"int", "float"}) else ""

    def of_field(self, class_name: str, field: str) -> Plainly:
        """Kind and choices of the flag of a field, and whether the source says it plainly."""
        annotation = self.index.field(class_name, field)
        if annotation is None:
            return "any", None, False
        kind, choices = kind_of(self.index.hints(annotation))
        return (*changed(kind, choices, self.touched.get(field, {})), True)


def put(
    found: Flags,
    names: list[str],
    kind: str,
    choices: list[str] | None,
    deprecated: str = "",
    number: str = "",
) -> None:
    """Note a flag under its first long name."""
    long = [name.replace("_", "-") for name in names if name.startswith("--")]
    name = long[0] if long else names[0]
    also = [other for other in [*long, *(n for n in names if not n.startswith("--"))] if other != name]
    found[name] = {"kind": kind, "also": also, "choices": choices, "deprecated": deprecated, "number": number}


def vllm_flags(root: Path) -> Flags:
    """The flags of `vllm serve`."""
    index = Index()
    for path in sorted((root / "config").glob("*.py")) or [root / "config.py"]:
        index.add(parsed(path))
    serve = [root / part for part in VLLM_SERVE if (root / part).is_file()]
    if not serve:
        raise ScanError(f"{root} has none of {', '.join(VLLM_SERVE)}")
    trees = [(path, parsed(path)) for path in (root / VLLM_ENGINE, *serve)]
    for _, tree in trees:
        index.add(tree)
    found: Flags = {}
    for _, tree in trees:
        arguments = Arguments(tree, index)
        found.update(arguments.flags())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                for field in index.fields[node.name]:
                    kind, choices, _ = arguments.of_field(node.name, field)
                    number = arguments.number_of(node.name, field)
                    put(found, [f"--{field}"], kind, choices, number=number)
    return found


def sglang_flags(root: Path) -> Flags:
    """The flags of `sglang.launch_server`: annotated fields and `add_argument`."""
    index = Index()
    found: Flags = {}
    trees = [parsed(path) for path in sorted((root / "srt/arg_groups/fields").glob("*.py"))]
    trees.append(parsed(root / SGLANG_SERVE))
    for tree in trees:
        index.add(tree)
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                for field, annotation in index.fields[node.name].items():
                    sglang_field(found, index, field, annotation)
        found.update(Arguments(tree, index).flags())
    return found


def sglang_field(found: Flags, index: Index, field: str, annotation: ast.expr) -> None:
    """A field `A[type, "help"]` or `A[type, Arg(...)]` is a flag."""
    if not isinstance(annotation, ast.Subscript) or name_of(annotation.value) not in ("A", "Annotated"):
        return
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    calls = [p for p in parts[1:] if isinstance(p, ast.Call) and name_of(p.func) == "Arg"]
    said: dict[str, ast.expr | None] = {k.arg: k.value for k in calls[0].keywords if k.arg} if calls else {}
    plain = any(isinstance(part, (ast.Constant, ast.JoinedStr, ast.BinOp)) for part in parts[1:])
    if not (calls or plain) or text_of(said.get("no_cli")) == "True":
        return
    kind, choices = kind_of(index.hints(parts[0]))
    kind = "switch" if kind == "toggle" else "value" if "type_parser" in said and kind == "list" else kind
    kind, choices = changed(kind, choices, said)
    aliases = said.get("aliases")
    also = [text_of(item) for item in aliases.elts] if isinstance(aliases, ast.List) else []
    put(found, [text_of(said.get("cli_name")) or f"--{field}", *also], kind, choices)


def variables(root: Path) -> list[str]:
    """Names of the environment variables that the engine's own list has."""
    found = set()
    for part in ("envs.py", "srt/environ.py"):
        if (root / part).is_file():
            for node in ast.walk(parsed(root / part)):
                word = node.value if isinstance(node, ast.Constant) else name_of(node)
                if isinstance(word, str) and _ENV_NAME.fullmatch(word):
                    found.add(word)
    return sorted(found)


def version_of(root: Path) -> str:
    """The version as its package metadata says, else as its own _version.py does; empty where none does."""
    found = sorted(root.parent.glob(f"{root.name}-*.dist-info")) or sorted(
        root.parent.glob(f"{root.name}_*-*.dist-info")
    )
    for folder in found:
        match = _NUMBERED.fullmatch(folder.name)
        if match:
            return match.group(1)
    try:
        text = (root / "_version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    match = re.search(r"""^(?:__version__ = )?version = ['"]([^'"]+)""", text, re.MULTILINE)
    return match.group(1) if match else ""


def scan(engine: str, root: Path) -> dict[str, Any]:
    """Everything about one engine's package folder. Raises ScanError."""
    flags = vllm_flags(root) if engine == "vllm" else sglang_flags(root)
    return {
        "engine": engine,
        "version": version_of(root),
        "root": str(root),
        "flags": flags,
        "env": variables(root),
    }


def main(arguments: list[str]) -> int:
    """`vllm [FOLDER]`: without a folder the package that this interpreter would import."""
    import importlib.util

    engine, *places = arguments
    spec = None if places else importlib.util.find_spec(engine)
    places = places or list((spec and spec.submodule_search_locations) or ())
    try:
        if not places:
            raise ScanError(f"this Python has no package {engine}")
        print(json.dumps(scan(engine, Path(places[0]))))  # noqa: T201
    except ScanError as cause:
        print(json.dumps({"error": str(cause)}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
