"""`nodegate systemd show|install`: the unit files that make nodegate a service."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.errors import ConfigError

ProcessesOption = Annotated[
    bool,
    typer.Option(
        "--process-supervision",
        help="With the drop-in for engines that are children of the agent (supervision: process).",
    ),
]
PrefixOption = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        metavar="DIR",
        help="Environment that the units start nodegate from [this one].",
        show_default=False,
    ),
]
#: What a unit file can hold without quoting.
_PLAIN = re.compile(r"^/[A-Za-z0-9/._+-]*$")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    systemd = typer.Typer(help="nodegate as a service of systemd.", no_args_is_help=True)
    systemd.command("show")(show_command)
    systemd.command("install")(install_command)
    app.add_typer(systemd, name="systemd")


def show_command(prefix: PrefixOption = None, process_supervision: ProcessesOption = False) -> None:
    """Print every file, each below a line with its place."""
    from agent.unit_files import unit_files

    for file in unit_files(_prefix(prefix), processes=process_supervision):
        typer.echo(f"### {file.path}\n{file.text}")


def install_command(
    root: Annotated[Path, typer.Option("--root", metavar="DIR", help="File system to write into.")] = Path(
        "/"
    ),
    prefix: PrefixOption = None,
    process_supervision: ProcessesOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, write nothing.")] = False,
) -> None:
    """Write the files that differ. Nothing is enabled, started or reloaded: the output says how."""
    from agent.unit_files import changed, install, unit_files

    files = unit_files(_prefix(prefix), processes=process_supervision)
    new = [file for file in files if changed(file, root)]
    for file in new:
        if not dry_run:
            install(file, root)
        typer.echo(f"{'would write' if dry_run else 'wrote'} {file.path}")
    if not new:
        typer.echo("every file is in place")
    elif not dry_run:
        typer.echo("now: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload")
        typer.echo("then: systemctl enable --now nodegate")


def _prefix(prefix: str | None) -> str:
    """The environment that is to be started, without a closing slash."""
    path = sys.prefix if prefix is None else prefix
    if not _PLAIN.fullmatch(path):
        raise ConfigError(
            f"{path!r} cannot be named in a unit", remedy="give --prefix an absolute path of plain characters"
        )
    return path.rstrip("/")
