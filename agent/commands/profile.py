"""`nodegate profile render|validate|schema|diff`: the node profile from its layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agent.commands import DEFAULT_PROFILE, OverlayOption
from agent.profile_loader import LoadedProfile, examine, first_fault, load_profile
from agent.profile_render import differences, render
from agent.profile_schema import json_schema
from agent.profile_tree import Table
from agent.profile_yaml import shown_path

EXIT_DIFFERENT = 1
EXIT_REFUSED = 3

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The node's profile.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of YAML or text.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    profile = typer.Typer(help="The node profile from its layers.", no_args_is_help=True)
    profile.command("render")(render_command)
    profile.command("validate")(validate_command)
    profile.command("schema")(schema_command)
    profile.command("diff")(diff_command)
    app.add_typer(profile, name="profile")


def render_command(
    file: FileArgument = DEFAULT_PROFILE,
    overlay: OverlayOption = None,
    plain: Annotated[bool, typer.Option("--plain", help="Without the comments that name layers.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the whole profile, defaults included. Each value names the layer and line it came from."""
    loaded, tree = _examined(file, overlay)
    if as_json:
        typer.echo(json.dumps(loaded.profile.model_dump(mode="json"), indent=2))
    else:
        typer.echo(render(loaded, None if plain else tree), nl=False)


def validate_command(file: FileArgument = DEFAULT_PROFILE, overlay: OverlayOption = None) -> None:
    """List every fault of a profile. One a line, with file, line and remedy; exit code 3 if there is one."""
    examined = examine(file, overlays=overlay or ())
    for fault in examined.faults:
        typer.echo(str(fault), err=True)
    if examined.loaded is None:
        raise typer.Exit(EXIT_REFUSED)
    for note in examined.notes:
        typer.echo(f"note: {note}", err=True)
    layers = " <- ".join(examined.loaded.layers)
    typer.echo(f"{shown_path(file)}: ok ({layers}), hash {examined.loaded.hash[:16]}")


def schema_command() -> None:
    """Print the JSON schema of a profile file. With units, descriptions and the limits of every check."""
    typer.echo(json.dumps(json_schema(), indent=2))


def diff_command(
    old: Annotated[Path, typer.Argument(metavar="A", help="A profile.")],
    new: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    overlay: OverlayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what differs once all layers are applied. Exit code 0 if nothing does, 1 if something does."""
    before, after = (load_profile(file, overlays=overlay or ()) for file in (old, new))
    changes = differences(before.profile, after.profile)
    if as_json:
        rows = [change.to_json() for change in changes]
        hashes = {"old_hash": before.hash, "new_hash": after.hash}
        typer.echo(json.dumps({"schema": 1, **hashes, "changes": rows}, indent=2))
    else:
        for change in changes:
            typer.echo(str(change))
    if changes:
        raise typer.Exit(EXIT_DIFFERENT)


def _examined(file: Path, overlay: list[Path] | None) -> tuple[LoadedProfile, Table]:
    """A profile with its tree. Raises ConfigError for the first fault."""
    examined = examine(file, overlays=overlay or ())
    if examined.loaded is None or examined.tree is None:
        raise first_fault(examined.faults, f"`nodegate profile validate {shown_path(file)}` lists them")
    return examined.loaded, examined.tree
