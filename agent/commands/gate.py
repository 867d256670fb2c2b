"""`nodegate gate` and `nodegate waive`: an operator's word on gates and verdicts, recorded with why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent.commands import DEFAULT_RUN_DIR, RunDirOption, parse_duration, typed_here
from agent.errors import ConfigError

ReasonOption = Annotated[
    str, typer.Option("--reason", help="Why; goes into the journal.", show_default=False)
]
EngineArgument = Annotated[
    str | None, typer.Argument(metavar="[ENGINE]", help="Engine [every engine].", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    gate = typer.Typer(help="Close, reopen and override gates.", no_args_is_help=True)
    gate.command("drain")(drain)
    gate.command("resume")(resume)
    gate.command("clear")(clear)
    gate.command("force-open")(force_open)
    app.add_typer(gate, name="gate")
    app.command("waive")(waive)


def drain(
    reason: ReasonOption, engine: EngineArgument = None, run_dir: RunDirOption = DEFAULT_RUN_DIR
) -> None:
    """Close the gate, then stop the engine. Load balancers get their grace in between."""
    give_order(run_dir, "/gate/drain", {"engine": engine, "reason": reason})


def resume(
    reason: ReasonOption, engine: EngineArgument = None, run_dir: RunDirOption = DEFAULT_RUN_DIR
) -> None:
    """End a drain: the gate proves itself again and then opens."""
    give_order(run_dir, "/gate/resume", {"engine": engine, "reason": reason})


def clear(
    reason: ReasonOption, engine: EngineArgument = None, run_dir: RunDirOption = DEFAULT_RUN_DIR
) -> None:
    """Say that a fault is dealt with. Ends quarantine and force-open, forgets sticky verdicts and crashes."""
    give_order(run_dir, "/gate/clear", {"engine": engine, "reason": reason})


def force_open(
    reason: ReasonOption,
    engine: EngineArgument = None,
    duration: Annotated[str, typer.Option("--for", help="How long, at most 24h.")] = "30m",
    run_dir: RunDirOption = DEFAULT_RUN_DIR,
) -> None:
    """Break-glass: answer ready despite blockers. Not for a lost GPU or an engine that does not answer."""
    for_s = parse_duration(duration)
    give_order(run_dir, "/gate/force-open", {"engine": engine, "reason": reason, "for_s": for_s})


def waive(
    check: Annotated[str, typer.Argument(metavar="CHECK", help="Id of the check.")],
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Subject, e.g. gpu3 or mlx5_0/1.")],
    reason: ReasonOption,
    duration: Annotated[
        str, typer.Option("--for", help="How long, at most 30d; 0s ends a waiver.", show_default=False)
    ],
    run_dir: RunDirOption = DEFAULT_RUN_DIR,
) -> None:
    """Let a check's verdict on one subject not count for a while."""
    for_s = 0.0 if duration.strip() in ("0", "0s") else parse_duration(duration)
    give_order(run_dir, "/waive", {"check": check, "subject": subject, "for_s": for_s, "reason": reason})


def give_order(run_dir: Path, path: str, body: dict[str, Any]) -> None:
    """Send an order to the daemon and show what it says."""
    from agent.admin_client import AdminClient

    if not body["reason"].strip():
        raise ConfigError("--reason is empty", remedy='say why in one line: --reason "coolant loop"')
    for line in AdminClient(run_dir).post(path, body)["said"]:
        typer.echo(typed_here(line, run_dir))
