"""`nodegate launch presets [NAME]`: the shipped launches, and where their numbers come from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.console import Out

if TYPE_CHECKING:
    from agent.launch.preset import Preset


def presets_command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One preset, or NAME/VARIANT.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """List the shipped launches. With a name show its flags, notes and where each number comes from."""
    from agent.launch.preset import preset, preset_names

    chosen = [preset(one) for one in (preset_names() if name is None else [name])]
    if as_json:
        typer.echo(json.dumps({"schema": 1, "presets": [_to_json(one) for one in chosen]}, indent=2))
    elif name is None:
        Out().table(("preset", "what it launches"), [(one.name, one.title) for one in chosen])
    else:
        _show(chosen[0])


def _to_json(one: Preset) -> dict[str, Any]:
    """A preset for programs."""
    from agent.profile_tree import to_plain

    return {
        "name": one.name,
        "title": one.title,
        "sources": list(one.sources),
        "notes": list(one.notes),
        "engine": to_plain(one.engine),
    }


def _show(one: Preset) -> None:
    """A preset for people: what it sets, as a profile would write it."""
    from agent.profile_render import flow
    from agent.profile_tree import leaves, to_plain

    out = Out()
    out.line(f"{one.name}: {one.title}")
    out.line()
    rows = [(".".join(path), flow(value)) for path, value in leaves(to_plain(one.engine))]
    out.table(("key of the engine", "value"), rows)
    for source in one.sources:
        out.line(f"source: {source}")
    for note in one.notes:
        out.line(f"note: {note}")
