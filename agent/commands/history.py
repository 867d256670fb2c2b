"""`nodegate history`: what changed, with evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from agent.commands import DEFAULT_RUN_DIR, RunDirOption, parse_duration
from agent.commands.status import JsonOption, clock_time


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("history")(history_command)


def history_command(
    since: Annotated[str, typer.Option("--since", help="How far to look back, e.g. 30m or 2h.")] = "2h",
    run_dir: RunDirOption = DEFAULT_RUN_DIR,
    as_json: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", help="The most entries.", min=1, max=10_000)] = 1000,
) -> None:
    """Show what changed. Results, gates and operators' orders, oldest first."""
    from agent.admin_client import AdminClient
    from agent.console import Out

    answer = AdminClient(run_dir).get("/history", since_s=parse_duration(since), limit=limit)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    if not answer["entries"]:
        Out().line(f"nothing has changed in the last {since.strip()}")
        return
    Out().table(("time", "what", "of", "change", "why"), [_history_row(entry) for entry in answer["entries"]])


def _history_row(entry: Mapping[str, Any]) -> tuple[object, ...]:
    """One entry by its kind."""
    when = clock_time(entry["wall_s"])
    match entry["kind"]:
        case "result":
            change = f"{entry['before'] or 'new'} -> {entry['verdict']}"
            return when, entry["check"], entry["subject"], change, entry["summary"]
        case "gate":
            return when, "gate", entry["engine"], f"{entry['before']} -> {entry['state']}", entry["reason"]
        case "operator":
            return when, "operator", entry["who"], entry["command"], entry["reason"]
        case _:
            return when, "agent", "", entry.get("mark"), entry.get("summary")
