"""`nodegate launch lint ENGINE`: flags and environment of a launch against the engine that is installed."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.commands import NodeOption, OverlayOption, ProfileOption, open_sources, resolve_profile
from agent.console import Out
from agent.errors import SourceError

if TYPE_CHECKING:
    from agent.launch.launch_profile import LaunchPlan
    from agent.node_profile import Engine
    from agent.sources import Sources
    from agent.sources.launch_reading import LaunchReport


class LintFormat(StrEnum):
    """How the report is written."""

    TABLE = "table"
    JSON = "json"


ParserOption = Annotated[
    bool,
    typer.Option("--with-parser", help="Ask the engine's own parser too; its imports take about 20 s."),
]
ConfigOption = Annotated[
    bool,
    typer.Option("--with-config", help="Let the engine make its configuration too (implies --with-parser)."),
]


def lint_command(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="Engine of the profile.")],
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    with_parser: ParserOption = False,
    with_config: ConfigOption = False,
    lint_format: Annotated[
        LintFormat, typer.Option("--format", help="Form of the output.")
    ] = LintFormat.TABLE,
) -> None:
    """Check flags, environment and NCCL settings of a launch; the engine is not started.

    Exit code 0 nothing wrong (warnings allowed), 1 an error, 2 the engine's flags are not known, 3 could
    not run.
    """
    from agent.launch.launch_profile import build_plan

    loaded = resolve_profile(profile, overlay, node)
    with open_sources(loaded.profile, node=node) as opened:
        simulated = opened.sources.simulated
        plan = build_plan(loaded.profile, engine, opened.sources, os.environ)
        settings = loaded.profile.engines[engine]
        try:
            report = _look(plan, settings, opened.sources, loaded.profile.fabric)
            asked = ""
            if with_parser or with_config:
                asked, report = _ask_parser(plan, settings, report, config=with_config)
        except SourceError as cause:
            _unknown(engine, str(cause), lint_format, simulated)
            raise typer.Exit(2) from cause
    if lint_format is LintFormat.JSON:
        typer.echo(json.dumps(report_json(engine, report, asked, simulated=simulated), indent=2))
    else:
        _show(report, asked, simulated=simulated)
    raise typer.Exit(exit_code(report))


def _look(plan: LaunchPlan, engine: Engine, sources: Sources, fabric: Any) -> LaunchReport:
    from agent.launch.lint import lint

    return lint(plan, engine, tree=sources.tree, fabric=fabric, simulated=sources.simulated)


def _ask_parser(
    plan: LaunchPlan, engine: Engine, report: LaunchReport, *, config: bool
) -> tuple[str, LaunchReport]:
    """What the engine's own parser says, and the report with that in it."""
    from dataclasses import replace

    from agent.launch.lint.installed import NoProgram, NotLintable
    from agent.launch.lint.own_parser import parser_problems
    from agent.sources.command import Commands

    try:
        asked, problems = parser_problems(plan, engine, Commands(), config=config)
    except (NotLintable, NoProgram) as reason:
        return f"the engine's own parser: not asked, {reason}", report
    return asked, replace(report, problems=(*problems, *report.problems))


def exit_code(report: LaunchReport) -> int:
    """Errors 1; a program whose flags nobody knows 2; else 0."""
    from agent.sources.launch_reading import Severity

    if any(problem.severity is Severity.ERROR for problem in report.problems):
        return 1
    return 0 if report.facts else 2


def report_json(engine: str, report: LaunchReport, asked: str, *, simulated: bool) -> dict[str, Any]:
    """The report for programs."""
    return {
        "schema": 1,
        "engine": engine,
        "simulated": simulated,
        "summary": report.summary,
        "parser": asked or None,
        "facts": dict(report.facts),
        "problems": [
            {"severity": p.severity.value, "where": p.where, "text": p.text, "remedy": p.remedy}
            for p in report.problems
        ],
    }


def _show(report: LaunchReport, asked: str, *, simulated: bool) -> None:
    """The report for people."""
    out = Out()
    out.banner(simulated)
    out.line(report.summary)
    if asked:
        out.line(asked)
    if report.problems:
        out.line()
        rows = [(p.severity.value, p.where, p.text, p.remedy) for p in report.problems]
        out.table(("severity", "where", "what is wrong", "what to do"), rows)


def _unknown(engine: str, cause: str, lint_format: LintFormat, simulated: bool) -> None:
    """Nothing could be looked at."""
    if lint_format is LintFormat.JSON:
        told = {"schema": 1, "engine": engine, "simulated": simulated, "summary": cause, "problems": None}
        typer.echo(json.dumps(told, indent=2))
    else:
        out = Out()
        out.banner(simulated)
        out.line(f"not known: {cause}")
