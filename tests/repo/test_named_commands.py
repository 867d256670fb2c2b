"""Advice that names a command of nodegate names one that there is."""

from __future__ import annotations

import re

import typer.main
from repo_files import short, tracked_with

from agent.cli import build_app

#: A command in running text stands in backquotes or behind "use" and "run".
NAMED = re.compile(r"(?:`|\buse |\brun )nodegate ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")


def test_every_command_that_is_named_exists() -> None:
    root = typer.main.get_command(build_app(None))
    groups = {
        name: set(getattr(command, "commands", {})) for name, command in getattr(root, "commands", {}).items()
    }
    found, wrong = 0, []
    for path in [*tracked_with((".py", ".yaml", ".html"), "agent"), *tracked_with((".md",), "")]:
        # What is announced as not built yet may be named in that paragraph.
        paragraphs = re.split(r"\n\s*\n", path.read_text())
        text = "\n".join(each for each in paragraphs if "not built" not in each.lower())
        for match in NAMED.finditer(text):
            found += 1
            name, word = match.groups()
            if name not in groups or (groups[name] and word is not None and word not in groups[name]):
                wrong.append(f"{short(path)}: {match.group(0)}")
    assert found > 10
    assert wrong == []
