"""`nodegate run`: the daemon."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands import (
    DEFAULT_RUN_DIR,
    DEFAULT_STATE_DIR,
    NodeOption,
    OverlayOption,
    ProfileOption,
    RunDirOption,
    ScenarioOption,
    StateDirOption,
    open_sources,
    resolve_profile,
    scenario_file,
)
from agent.early_signals import early_signals
from agent.log_json import LogFormat, start_logging

if TYPE_CHECKING:
    from agent.checklist.office import Replayed
    from agent.sources.live import LiveSources
    from agent.sources.replay import ReplaySources

LogDirOption = Annotated[
    Path | None,
    typer.Option("--log-dir", help="Folder of the engines' output [STATE_DIR/log].", show_default=False),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="NODEGATE_LOG_FORMAT",
        help="Lines for people, or one JSON object a line (docs/interfaces.md).",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run_command)


def run_command(
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    run_dir: RunDirOption = DEFAULT_RUN_DIR,
    log_dir: LogDirOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run the daemon. It checks the node, launches its engines and answers load balancers."""
    from agent.front import Front
    from agent.premises import Folders, take_premises

    start_logging(log_format)
    with early_signals() as told:
        loaded = resolve_profile(profile, overlay, node)
        folders = Folders(state_dir, run_dir, log_dir or state_dir / "log")
        with take_premises(folders, loaded.profile) as premises, Front(premises) as front:
            # All that is slow to load and to build comes after the API answers.
            from agent.checks.registry import load_all
            from agent.daemon import Daemon
            from agent.daemon_parts import EventRelay, Surroundings

            relay = EventRelay()
            with open_sources(
                loaded.profile, node=node, scenario=scenario, on_event=relay, state_dir=state_dir
            ) as opened:
                given = Surroundings(
                    premises=premises,
                    loaded=loaded,
                    sources=opened.sources,
                    relay=relay,
                    checks=load_all(),
                    load_again=lambda: resolve_profile(profile, overlay, node),
                    node=node.resolve().name if node else "",
                    front=front,
                    replayed=_replayed(opened, scenario),
                    told=told,
                )

                async def life() -> None:
                    """Build the daemon on the loop that it runs on."""
                    await Daemon(given).run()

                # What is loaded by now stays: going through it would take the collector a tenth of a second.
                gc.freeze()
                asyncio.run(life())


def _replayed(opened: LiveSources | ReplaySources, scenario: Path | None) -> Replayed | None:
    """What a simulated daemon replays; None on a real node."""
    from agent.checklist.office import Replayed
    from agent.sources.replay import ReplaySources

    if not isinstance(opened, ReplaySources):
        return None
    folder = opened.folder.path
    return Replayed(folder, scenario_file(folder, scenario), lambda: opened.began_mono_s)
