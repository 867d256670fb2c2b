"""`nodegate checklist`: ordered steps that prove a node, with a record that can be resumed and reported."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.commands import (
    DEFAULT_RUN_DIR,
    NodeOption,
    OverlayOption,
    ProfileOption,
    ScenarioOption,
)
from agent.commands.status import JsonOption
from agent.errors import ConfigError

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the checklist.")]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="A checklist of your own.", show_default=False),
]
RunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help=f"Folder of the operator socket [{DEFAULT_RUN_DIR}; with --node no daemon].",
        show_default=False,
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Folder of the records [the daemon's; with --node ~/.local/state/nodegate/NODE].",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    checklist = typer.Typer(help="Prove a node step by step.", no_args_is_help=True)
    checklist.command("list")(list_command)
    checklist.command("run")(run_command)
    checklist.command("show")(show_command)
    app.add_typer(checklist, name="checklist")


def list_command(
    profile: ProfileOption = None, node: NodeOption = None, overlay: OverlayOption = None
) -> None:
    """List the checklists: the shipped ones and those of the profile's checklists_dir."""
    from agent.checklist.load import available, load_checklist
    from agent.checklist.places import own_folder
    from agent.console import Out

    known = available(own_folder(profile, overlay, node))
    lists = [load_checklist(path) for path in known.values()]
    Out().table(("checklist", "steps", "what"), [(one.name, len(one.steps), one.title) for one in lists])


def run_command(
    name: NameArgument,
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
    run_dir: RunDir = None,
    state_dir: StateDir = None,
    file: FileOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest run of it.")] = False,
    answer: Annotated[
        list[str] | None,
        typer.Option(
            "--answer", metavar="STEP=TEXT", help="Answer of a question; may be given several times."
        ),
    ] = None,
    who: Annotated[
        str | None, typer.Option("--who", metavar="NAME", help="Who runs it [the login name].")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; goes into the record.")] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="STEP.PARAM=NUMBER", help="Lower a number; the record says so."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="DIR", help="Write the reports there as well.")
    ] = None,
) -> None:
    """Run a checklist. Exit code 0 passed, 1 a step failed, 2 something is unknown, 3 could not run."""
    from agent.checklist.conduct import Wanted, conduct
    from agent.checklist.operator import login_name, one_line, parse_answers, parse_settings

    answers = parse_answers(answer or ())
    if answers and who is None:
        raise ConfigError("--answer needs the name of who answers", remedy="add --who NAME")
    wanted = Wanted(
        name=name,
        file=file,
        profile=profile,
        overlays=tuple(overlay or ()),
        node=node,
        scenario=scenario,
        run_dir=run_dir,
        state_dir=state_dir,
        resume=resume,
        answers=answers,
        who=one_line(who, "--who") if who is not None else login_name(),
        reason=one_line(reason, "--reason") if reason else "",
        settings=parse_settings(settings or ()),
        report=report,
    )
    raise typer.Exit(conduct(wanted))


def show_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a checklist, or id of a run.")],
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    run_dir: RunDir = None,
    state_dir: StateDir = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the steps of a checklist, or the record of a run."""
    from agent.checklist.load import load_checklist, load_named
    from agent.checklist.places import own_folder, record_folder
    from agent.checklist.show import show_checklist, show_record
    from agent.checklist.store import RUN_ID, RunStore
    from agent.console import Out

    shown: Any
    if RUN_ID.fullmatch(name):
        shown = RunStore(record_folder(state_dir, run_dir, node)).read(name)
    else:
        shown = load_checklist(file) if file else load_named(name, own_folder(profile, overlay, node))
    if as_json:
        sys.stdout.write(json.dumps(shown.model_dump(mode="json"), indent=2) + "\n")
    elif RUN_ID.fullmatch(name):
        show_record(shown, Out())
    else:
        show_checklist(shown, Out())
