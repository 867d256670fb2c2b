"""`nodegate bundle FILE`: an evidence archive for a vendor case, bounded, without secrets and prompts."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import EXIT_PASS, EXIT_UNKNOWN
from agent.commands import (
    DEFAULT_RUN_DIR,
    DEFAULT_STATE_DIR,
    NodeOption,
    OverlayOption,
    ProfileOption,
    parse_duration,
    resolve_profile,
)
from agent.errors import AgentError, ConfigError

if TYPE_CHECKING:
    from agent.bundle.archive import Fitted
    from agent.bundle.make import Made
    from agent.bundle.parts import Case
    from agent.checklist.places import Places
    from agent.profile_loader import LoadedProfile
    from agent.sources.live import LiveSources
    from agent.sources.replay import ReplaySources

#: Seconds that closing the sources may take; one that hangs is left to the end of the process.
_CLOSE_S = 5.0
MOST_MIB = 1024


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bundle")(bundle_command)


def bundle_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New archive, NAME.tar.gz.")],
    since: Annotated[str, typer.Option("--since", help="How far to look back, e.g. 24h or 3d.")] = "24h",
    max_mib: Annotated[int, typer.Option("--max-mib", help="Largest size.", min=1, max=MOST_MIB)] = 64,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace UUIDs, serial numbers, host name and addresses too.")
    ] = False,
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir",
            metavar="DIR",
            help=f"Folder of the operator socket [{DEFAULT_RUN_DIR}; with --node none].",
            show_default=False,
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir",
            metavar="DIR",
            help=f"Folder of the journal [{DEFAULT_STATE_DIR}, or that of the --run-dir; with --node none].",
            show_default=False,
        ),
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            "--log-dir",
            metavar="DIR",
            help="Folder of the engines' output [STATE_DIR/log].",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make an archive for a vendor case. Exit code 0 complete, 2 something is missing, 3 not written."""
    from agent.bundle.archive import check_target

    check_target(file)
    since_s = parse_duration(since)
    daemon = None if node is not None or run_dir is None else _of_daemon(run_dir, profile, overlay)
    if daemon is None:
        loaded, problem = _profile(profile, overlay, node)
    else:
        loaded, problem, node = daemon.loaded, "", daemon.node
        state_dir = state_dir or daemon.state_dir
    opened = _open(loaded, node)
    try:
        opened.start()
        case = _case(opened, loaded, problem, node, since_s, _folders(node, run_dir, state_dir, log_dir))
        made = _make(case, file, max_mib, redact)
    finally:
        closing = threading.Thread(target=opened.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
    _report(made, file, node)
    raise typer.Exit(EXIT_PASS if made.complete else EXIT_UNKNOWN)


def _of_daemon(run_dir: Path, profile: Path | None, overlay: list[Path] | None) -> Places | None:
    """What a daemon that is named runs on, a captured node too; None where it does not say."""
    from agent.checklist.places import find_places

    try:
        return find_places(
            profile=profile, overlays=overlay or (), node=None, scenario=None, run_dir=run_dir, state_dir=None
        )
    except AgentError:
        return None


def _profile(
    profile: Path | None, overlay: list[Path] | None, node: Path | None
) -> tuple[LoadedProfile | None, str]:
    """The profile, or why it cannot be used: a bundle is also made to find out what is wrong."""
    try:
        return resolve_profile(profile, overlay, node), ""
    except ConfigError as cause:
        if node is not None and not node.is_dir():
            raise
        return None, str(cause)


def _open(loaded: LoadedProfile | None, node: Path | None) -> LiveSources | ReplaySources:
    if node is not None:
        from agent.sources.replay import replay_sources

        return replay_sources(node, None)
    from agent.sources.live import live_sources

    return live_sources(loaded.profile if loaded is not None else None)


def _folders(
    node: Path | None, run_dir: Path | None, state_dir: Path | None, log_dir: Path | None
) -> dict[str, Path | None]:
    """The daemon's folders: this machine's, unless a captured node stands for it."""
    state = state_dir or (DEFAULT_STATE_DIR if node is None else None)
    return {
        "run_dir": run_dir or (DEFAULT_RUN_DIR if node is None else None),
        "state_dir": state,
        "log_dir": log_dir or (state / "log" if state is not None else None),
    }


def _case(
    opened: LiveSources | ReplaySources,
    loaded: LoadedProfile | None,
    problem: str,
    node: Path | None,
    since_s: float,
    folders: dict[str, Path | None],
) -> Case:
    from agent.bundle.parts import Case
    from agent.sources.command import Commands
    from agent.sources.replay import ReplaySources

    name = opened.folder.meta.name if isinstance(opened, ReplaySources) else socket.gethostname()
    now_wall_s = time.time()
    return Case(
        sources=opened.sources,
        ask=Commands().run,
        loaded=loaded,
        profile_problem=problem,
        node_dir=node,
        node=loaded.profile.node or name if loaded is not None else name,
        now_wall_s=now_wall_s,
        since_wall_s=now_wall_s - since_s,
        state_dir=folders["state_dir"],
        run_dir=folders["run_dir"],
        log_dir=folders["log_dir"],
    )


def _make(case: Case, file: Path, max_mib: int, redact: bool) -> Made:
    from agent.bundle.make import make_bundle
    from agent.bundle.secret_search import Known, known_secrets
    from agent.bundle.sources_list import SOURCES

    known = known_secrets(case.loaded.profile if case.loaded is not None else None)
    if case.loaded is None:  # which files hold secrets is not known either
        known = Known(known.values, (*known.unread, ("no profile", case.profile_problem)))
    return make_bundle(case, SOURCES, file, known, max_mib=max_mib, redact=redact, say=_say)


def _say(line: str) -> None:
    """Progress for a person who waits."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")


def _report(made: Made, file: Path, node: Path | None) -> None:
    from agent.console import Out

    out = Out()
    out.banner(node is not None, str(node or ""))
    rows = [(part.name, part.state.replace("_", " "), len(part.pieces), _why(part)) for part in made.parts]
    out.table(("SOURCE", "STATE", "FILES", "WHY"), rows)
    size = f"{made.size_bytes / 1024:.0f} KiB"
    out.line(f"{file}: {size}, {'complete' if made.complete else 'something is missing, see above'}")
    out.line(
        "look through it before you hand it on: secrets and requests were taken out as far as they are known"
    )


def _why(part: Fitted) -> str:
    left_out = [f"{each['path']}: {each['why']}" for each in part.left_out[:3]]
    return "; ".join(filter(None, (part.why, *left_out)))[:300]
