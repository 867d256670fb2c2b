"""Rules of the code that no linter has: sizes, what checks may touch, and that the import ban is in force."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from repo_files import ROOT, short, tracked_with

LONGEST_FILE = 300
#: Tests are lists of cases; a long list is still one idea.
LONGEST_TEST = 500
LONGEST_BODY = 40

#: What a check may import: its own world and the pure parts of the standard library.
PURE = {
    "__future__",
    "agent",
    "collections",
    "concurrent",  # waits side by side for sources that answer late
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",
    "difflib",
    "enum",
    "fnmatch",
    "functools",
    "importlib",
    "itertools",
    "json",  # a record that a source has read is text
    "math",
    "operator",
    "pkgutil",
    "pydantic",
    "re",
    "statistics",
    "typing",
}
TOUCHES_FILES = {
    "glob",
    "iterdir",
    "mkdir",
    "read_bytes",
    "read_text",
    "rglob",
    "stat",
    "unlink",
    "write_bytes",
    "write_text",
}


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_file_is_too_long() -> None:
    long = []
    for path in tracked_with((".py",)):
        limit = LONGEST_TEST if path.is_relative_to(ROOT / "tests") else LONGEST_FILE
        lines = len(path.read_text().splitlines())
        if lines > limit:
            long.append(f"{short(path)}: {lines} lines, at most {limit}")
    assert long == []


def test_no_function_is_too_long() -> None:
    long = [
        f"{short(path)}:{node.lineno} {node.name}"
        for path in tracked_with((".py",), "agent")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _body_lines(node) > LONGEST_BODY
    ]
    assert long == []


def test_checks_import_only_what_is_pure() -> None:
    found = set()
    for path in tracked_with((".py",), "agent/checks"):
        for node in ast.walk(_tree(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found |= {(short(path), name) for name in names if name.split(".")[0] not in PURE}
    assert found == set()


def test_checks_read_no_files() -> None:
    found = []
    for path in tracked_with((".py",), "agent/checks"):
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name == "open" or name in TOUCHES_FILES:
                found.append(f"{short(path)}:{node.lineno} {name}")
    assert found == []


@pytest.mark.parametrize("banned", ["subprocess", "pynvml", "psutil"])
@pytest.mark.parametrize(
    ("where", "refused"),
    [("agent/gate.py", True), ("agent/checks/x.py", True), ("agent/sources/x.py", False)],
)
def test_only_sources_may_import(banned: str, where: str, refused: bool) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "check", "--no-cache", "--select", "TID251", "--stdin-filename", where, "-"]
    answer = subprocess.run(command, cwd=ROOT, input=f"import {banned}\n", capture_output=True, text=True)
    assert ("TID251" in answer.stdout) is refused, answer.stdout + answer.stderr


def test_the_import_ban_has_no_other_exceptions() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    excepted = {place for place, rules in ruff["per-file-ignores"].items() if "TID251" in rules}
    # Roles run tools on a node by this one module; no part of the agent is on that side.
    roles = "playbooks/module_utils/nodegate_apply/host.py"
    assert excepted == {"agent/sources/**", "agent/launch/supervisor.py", roles, "tests/**"}


def test_no_test_is_skipped_by_a_mark() -> None:
    words = ["pytest." + word for word in ("skip(", "xfail(", "importorskip(", "mark.skip", "mark.xfail")]
    found = [
        f"{short(path)}: {word}"
        for path in tracked_with((".py",), "tests")
        for word in words
        if word in path.read_text()
    ]
    assert found == []


def test_tests_are_no_packages() -> None:
    assert [short(path) for path in tracked_with((".py",), "tests") if path.name == "__init__.py"] == []
