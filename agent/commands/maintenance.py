"""`nodegate maintenance`: the hold on a node that survives a reboot."""

from __future__ import annotations

import typer

from agent.commands import DEFAULT_RUN_DIR, RunDirOption
from agent.commands.gate import ReasonOption, give_order


def register(app: typer.Typer) -> None:
    """Add the commands."""
    maintenance = typer.Typer(help="Take the node out of service, and give it back.", no_args_is_help=True)
    maintenance.command("enter")(enter)
    maintenance.command("exit")(leave)
    app.add_typer(maintenance, name="maintenance")


def enter(reason: ReasonOption, run_dir: RunDirOption = DEFAULT_RUN_DIR) -> None:
    """Close every gate and stop the engines. That holds over restarts and reboots."""
    give_order(run_dir, "/maintenance/enter", {"reason": reason})


def leave(reason: ReasonOption, run_dir: RunDirOption = DEFAULT_RUN_DIR) -> None:
    """End the hold: every gate proves itself again and then opens."""
    give_order(run_dir, "/maintenance/exit", {"reason": reason})
