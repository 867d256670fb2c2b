"""`nodegate demo`: the daemon on a simulated node with an embedded engine, told on the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.errors import ConfigError

DEFAULT_SCENARIO = "overheat-nvlink"
LONGEST_S = 86400.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo_command)


def demo_command(
    scenario: Annotated[
        str,
        typer.Option(
            "--scenario", metavar="NAME", help="Scenario of the node, `list`, or a file of your own."
        ),
    ] = DEFAULT_SCENARIO,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", metavar="N", help="End after N seconds [after the scenario].", show_default=False
        ),
    ] = None,
) -> None:
    """Run the daemon on a SIMULATED 8-GPU node. Faults close the gate, their end opens it again."""
    from agent.console import Out
    from agent.demo import run_demo
    from agent.demo_node import scenario_path, scenarios

    if scenario == "list":
        Out().table(("scenario", "what happens"), scenarios())
        return
    if seconds is not None and not 0 < seconds <= LONGEST_S:
        raise ConfigError(
            f"--seconds {seconds:g} is not between 0 and {LONGEST_S:g}",
            remedy="write --seconds 30, for example",
        )
    opened = run_demo(scenario_path(scenario), seconds, Out())
    raise typer.Exit(0 if opened else 1)
