"""`nodegate launch command ENGINE`: the exact argv and environment of an engine's launch."""

from __future__ import annotations

import json
import os
import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.commands import NodeOption, OverlayOption, ProfileOption, open_sources, resolve_profile
from agent.commands.launch_lint import lint_command
from agent.commands.launch_plan import plan_command
from agent.commands.launch_presets import presets_command
from agent.console import Out
from agent.launch.secret_words import shown_argv, shown_env

if TYPE_CHECKING:
    from agent.launch.launch_profile import LaunchPlan


class PlanFormat(StrEnum):
    """How the launch is written."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    launch = typer.Typer(help="How engines are launched.", no_args_is_help=True)
    launch.callback()(_group)  # keeps `command` a subcommand although it is the only one
    launch.command("command")(command_command)
    launch.command("plan")(plan_command)
    launch.command("lint")(lint_command)
    launch.command("presets")(presets_command)
    app.add_typer(launch, name="launch")


def _group() -> None:
    """How engines are launched."""


def command_command(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="Engine of the profile.")],
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    plan_format: Annotated[
        PlanFormat, typer.Option("--format", help="Form of the output.")
    ] = PlanFormat.TEXT,
) -> None:
    """Print the exact argv and environment. Secrets are shown by name only."""
    from agent.launch.launch_profile import build_plan

    loaded = resolve_profile(profile, overlay, node)
    with open_sources(loaded.profile, node=node) as opened:
        plan = build_plan(loaded.profile, engine, opened.sources, os.environ)
        simulated = opened.sources.simulated
    if plan_format is PlanFormat.JSON:
        typer.echo(json.dumps(plan_json(plan, simulated=simulated), indent=2))
    else:
        _show(plan, simulated=simulated)


def plan_json(plan: LaunchPlan, *, simulated: bool) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "schema": 1,
        "engine": plan.engine,
        "simulated": simulated,
        "argv": shown_argv(plan.argv),
        "env": shown_env(plan.env),
        "env_origins": dict(plan.origins),
        "secrets": list(plan.secret_names),
        "working_dir": plan.working_dir,
        "kind": plan.kind,
        "runtime": plan.runtime,
        "container_name": plan.container_name,
        "max_run_s": plan.max_run_s,
        "headless": plan.headless,
        "checkpoint": plan.checkpoint,
        "gpus": list(plan.gpu_uuids),
        "numa_nodes": list(plan.numa),
        "notes": list(plan.notes),
    }


def _show(plan: LaunchPlan, *, simulated: bool) -> None:
    """The plan for people."""
    out = Out()
    out.banner(simulated)
    if plan.working_dir is not None:
        out.line(f"cd {shlex.quote(plan.working_dir)}")
    out.line(shlex.join(shown_argv(plan.argv)))
    out.line()
    rows = [(name, plan.origins[name], value) for name, value in sorted(shown_env(plan.env).items())]
    rows += [(name, "launch.env_file", "(secret)") for name in plan.secret_names]
    out.table(("variable", "from", "value"), rows)
    for note in plan.notes:
        out.line(f"note: {note}")
