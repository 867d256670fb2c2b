"""`nodegate check`: one pass over the checks, without the daemon."""

from __future__ import annotations

import json
import socket
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands import (
    DEFAULT_STATE_DIR,
    NodeOption,
    OverlayOption,
    ProfileOption,
    ScenarioOption,
    open_sources,
    resolve_profile,
)
from agent.errors import ConfigError
from agent.model import Phase

if TYPE_CHECKING:
    from agent.known_waivers import KnownWaivers
    from agent.one_shot import PassReport
    from agent.sources.live import LiveSources
    from agent.sources.replay import ReplaySources

#: Longest wait between two samples of a counter, in seconds.
LONGEST_SAMPLE_S = 600.0


class ReportFormat(StrEnum):
    """How the report is written."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"


PhaseOption = Annotated[Phase, typer.Option("--phase", help="Which checks to run.")]
OnlyOption = Annotated[
    str | None,
    typer.Option("--only", metavar="GLOB", help="Only checks whose id matches.", show_default=False),
]
FormatOption = Annotated[ReportFormat, typer.Option("--format", help="Form of the report.")]
SampleOption = Annotated[
    float | None,
    typer.Option(
        "--sample-seconds",
        help="Seconds between the two samples of counters [as long as the checks need].",
        show_default=False,
    ),
]
WaiversOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help=f"Folder of the daemon whose waivers count [{DEFAULT_STATE_DIR}; with --node none].",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check_command)


def check_command(
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
    phase: PhaseOption = Phase.ADMISSION,
    only: OnlyOption = None,
    report_format: FormatOption = ReportFormat.TABLE,
    sample_seconds: SampleOption = None,
    state_dir: WaiversOption = None,
) -> None:
    """Run the checks once. Exit code 0 pass, 1 a check failed, 2 something is unknown, 3 could not run."""
    from agent.checks.registry import load_all
    from agent.one_shot import run_pass, select
    from agent.parts import read_parts

    if sample_seconds is not None and not 0 <= sample_seconds <= LONGEST_SAMPLE_S:
        raise ConfigError(
            f"--sample-seconds {sample_seconds:g} is not between 0 and {LONGEST_SAMPLE_S:g}",
            remedy="write for example --sample-seconds 5",
        )
    checks = load_all()
    select(checks, phase, only)  # a wrong --only is told before anything is opened
    loaded = resolve_profile(profile, overlay, node)
    with open_sources(loaded.profile, node=node, scenario=scenario) as opened:
        report = run_pass(
            opened.sources,
            loaded,
            checks,
            phase=phase,
            only=only,
            node=loaded.profile.node or _name_of(opened),
            sample_s=sample_seconds,
            on_sampling=_say_sampling,
            waivers=_waivers(state_dir, node),
            parts=lambda: read_parts(opened.sources, loaded.profile),
        )
    _write(report, report_format)
    raise typer.Exit(report.exit_code())


def _waivers(state_dir: Path | None, node: Path | None) -> KnownWaivers:
    """Those of this machine's daemon; a captured node has none unless a folder is named."""
    from agent.known_waivers import NO_WAIVERS, read_waivers

    folder = state_dir or (DEFAULT_STATE_DIR if node is None else None)
    return NO_WAIVERS if folder is None else read_waivers(folder, time.time())


def _name_of(opened: LiveSources | ReplaySources) -> str:
    """The captured node's name, or this machine's."""
    from agent.sources.replay import ReplaySources

    return opened.folder.meta.name if isinstance(opened, ReplaySources) else socket.gethostname()


def _say_sampling(wait_s: float) -> None:
    """Tell a person who watches why nothing happens for a while."""
    if sys.stderr.isatty():
        sys.stderr.write(f"sampling counters for {wait_s:g} s ...\n")


def _write(report: PassReport, report_format: ReportFormat) -> None:
    from agent.check_report import junit, show_table
    from agent.console import Out

    if report_format is ReportFormat.JSON:
        sys.stdout.write(json.dumps(report.to_json(), indent=2) + "\n")
    elif report_format is ReportFormat.JUNIT:
        sys.stdout.write(junit(report))
    else:
        show_table(report, Out())
