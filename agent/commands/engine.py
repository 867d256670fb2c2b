"""`nodegate engine`: start, stop and restart an engine by way of its gate, and read its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from agent.commands import DEFAULT_RUN_DIR, RunDirOption
from agent.commands.gate import give_order

ReasonOption = Annotated[str, typer.Option("--reason", help="Why; goes into the journal.")]
NO_REASON = "no reason given"
EngineName = Annotated[str, typer.Argument(metavar="ENGINE", help="Engine of the profile.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    engine = typer.Typer(help="Start, stop and look at engines.", no_args_is_help=True)
    engine.command("start")(start)
    engine.command("stop")(stop)
    engine.command("restart")(restart)
    engine.command("logs")(logs)
    app.add_typer(engine, name="engine")


def start(
    engine: EngineName, reason: ReasonOption = NO_REASON, run_dir: RunDirOption = DEFAULT_RUN_DIR
) -> None:
    """Start a stopped engine. It waits until its node passes every admission check."""
    give_order(run_dir, "/engine/start", {"engine": engine, "reason": reason})


def stop(
    engine: EngineName, reason: ReasonOption = NO_REASON, run_dir: RunDirOption = DEFAULT_RUN_DIR
) -> None:
    """Close the engine's gate, then stop it. Load balancers get their grace in between."""
    give_order(run_dir, "/engine/stop", {"engine": engine, "reason": reason})


def restart(
    engine: EngineName, reason: ReasonOption = NO_REASON, run_dir: RunDirOption = DEFAULT_RUN_DIR
) -> None:
    """Stop an engine as `stop` does, and start it again."""
    give_order(run_dir, "/engine/restart", {"engine": engine, "reason": reason})


def logs(
    engine: EngineName,
    lines: Annotated[int, typer.Option("--lines", help="The last so many.", min=1, max=10_000)] = 200,
    run_dir: RunDirOption = DEFAULT_RUN_DIR,
) -> None:
    """Show the last lines of an engine's output."""
    from agent.admin_client import AdminClient

    client = AdminClient(run_dir)
    found = client.get("/engine/logs", engine=engine, lines=lines)["lines"]
    for line in found:
        typer.echo(line)
    if not found:
        typer.echo(_why_no_log(client.get("/status"), engine), err=True)


def _why_no_log(status: Mapping[str, Any], engine: str) -> str:
    """Why there is no output, for a person who looks for it."""
    mode = status.get("mode")
    if mode != "manage":
        return f"nodegate does not run {engine} in mode {mode}: read the log of what runs it"
    process = next((gate["process"] for gate in status["gates"] if gate["engine"] == engine), None) or {}
    return f"{engine} has written no log yet: its process is {process.get('phase', 'not known')}"
