"""What may not stand in any tracked file, and that data files can be read."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import yaml
from repo_files import ROOT, short, tracked, tracked_with

#: Written in pieces so that this file does not find itself.
FORBIDDEN = {
    "a package registry": r"pypi"
    + r"\.org|pythonhosted"
    + r"\.org|registry\.npmjs"
    + r"\.org|debian"
    + r"\.org/debian",
    "a path of a developer's machine": r"(?<![\w.\-])/(?:wo" + r"rk|ro" + r"ot|home/\w+)/\w",
    "unfinished work": r"\bTO" + r"DO\b|\bFIX" + r"ME\b|\bXX" + r"X\b|NotImplemented" + r"Error",
}


def _text(path) -> str | None:
    """The file's text; None for a binary file."""
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8")


@pytest.mark.parametrize("what", sorted(FORBIDDEN))
def test_no_file_contains(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = []
    for path in tracked():
        for number, line in enumerate((_text(path) or "").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{short(path)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_every_yaml_file_parses() -> None:
    paths = tracked_with((".yaml", ".yml"))
    assert paths
    for path in paths:
        if "broken" in path.parts:
            continue
        list(yaml.safe_load_all(path.read_text()))


def test_every_json_file_parses() -> None:
    for path in tracked_with((".json",)):
        if "broken" in path.parts:
            continue
        json.loads(path.read_text())


def test_text_files_end_with_a_line_break_and_have_no_trailing_blanks() -> None:
    found = []
    for path in tracked_with((".py", ".md", ".toml", ".sh", ".html", ".yml")):
        text = path.read_text()
        if text and not text.endswith("\n"):
            found.append(f"{short(path)}: no line break at the end")
        found += [
            f"{short(path)}:{number}: trailing blanks"
            for number, line in enumerate(text.splitlines(), 1)
            if line != line.rstrip()
        ]
    assert found == []


def test_the_fixed_names_are_there() -> None:
    top = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {"playbooks", "agent", "inventories", "tests", "pyproject.toml", "README.md"} <= top
    assert (ROOT / "agent" / "checks").is_dir()
    assert (ROOT / "agent" / "launch").is_dir()
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == "nodegate"
