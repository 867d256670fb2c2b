"""The commands of `nodegate`, one module each; every module has `register(app)`. Here is what they share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.launch.evidence import LiveLaunches
    from agent.node_profile import NodeProfile
    from agent.profile_loader import LoadedProfile
    from agent.sources.live import LiveSources
    from agent.sources.replay import ReplaySources

DEFAULT_PROFILE = Path("/etc/nodegate/profile.yaml")
DEFAULT_STATE_DIR = Path("/var/lib/nodegate")
DEFAULT_RUN_DIR = Path("/run/nodegate")

ProfileOption = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help=f"Node profile [{DEFAULT_PROFILE}, or the one in the --node folder].",
        show_default=False,
    ),
]
OverlayOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--overlay",
        metavar="FILE",
        help="Site layer under the profile; may be given several times.",
        show_default=False,
    ),
]
NodeOption = Annotated[
    Path | None,
    typer.Option(
        "--node",
        metavar="DIR",
        help="Folder of a captured node, used instead of this machine (SIMULATED).",
        show_default=False,
    ),
]
ScenarioOption = Annotated[
    Path | None,
    typer.Option(
        "--scenario",
        metavar="FILE",
        help="Changes over time to the captured node: a file, or a name in its scenarios folder.",
        show_default=False,
    ),
]
RunDirOption = Annotated[
    Path, typer.Option("--run-dir", metavar="DIR", help="Folder of the operator socket.")
]
StateDirOption = Annotated[
    Path, typer.Option("--state-dir", metavar="DIR", help="Folder of the journal and the holds.")
]

#: An order in a text for people: up to the backquote that ends it, or the end of the line.
_ORDER = re.compile(r"nodegate (?:gate|engine|maintenance) [^`]*")
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h|d)$")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S = 366 * 86400.0


def typed_here(line: str, run_dir: Path | None) -> str:
    """The line with its orders as they are typed for the daemon of this run folder (pure).

    Daemon and checklists do not know how they were called; None and the default need no option.
    """
    if run_dir in (None, DEFAULT_RUN_DIR):
        return line
    return _ORDER.sub(lambda order: f"{order[0]} --run-dir {shlex.quote(str(run_dir))}", line)


def parse_duration(text: str) -> float:
    """Seconds in a duration such as `90s`, `30m`, `2h` or `1.5d`; a bare number is refused: no unit."""
    match = _DURATION.match(text.strip())
    if match is None:
        raise ConfigError(
            f"{text!r} is not a duration", remedy="write a number and a unit: 90s, 30m, 2h or 1d"
        )
    seconds = float(match.group(1)) * _UNIT_S[match.group(2)]
    if not 0 < seconds <= _LONGEST_S:
        raise ConfigError(f"{text!r} is not between 1ms and 366d", remedy="write for example 30m")
    return seconds


def resolve_profile(
    profile: Path | None, overlays: Sequence[Path] | None = None, node: Path | None = None
) -> LoadedProfile:
    """Load the profile that was named, else the one in the node folder, else the one of this machine."""
    from agent.profile_loader import load_profile

    path = profile or _default_profile(node)
    return load_profile(path, overlays=tuple(overlays or ()))


def _default_profile(node: Path | None) -> Path:
    """The profile that goes with a captured node, or this machine's."""
    path = DEFAULT_PROFILE if node is None else node / "profile.yaml"
    if node is not None and not node.is_dir():
        raise ConfigError(
            "is not a folder", where=str(node), remedy="give the folder of a captured node to --node"
        )
    if not path.is_file():
        write_it = "write it (docs/profile.md), or " if node is None else ""
        raise ConfigError(
            "there is no profile here", where=str(path), remedy=f"{write_it}name one with --profile FILE"
        )
    return path


def profile_of_machine() -> Path | None:
    """This machine's profile, None without one."""
    try:
        return DEFAULT_PROFILE if DEFAULT_PROFILE.is_file() else None
    except OSError:
        return DEFAULT_PROFILE  # it may be there behind a folder that is closed to us: reading it says so


@contextmanager
def open_sources(
    profile: NodeProfile,
    *,
    node: Path | None = None,
    scenario: Path | None = None,
    on_event: Callable[[str], None] | None = None,
    state_dir: Path | None = None,
) -> Iterator[LiveSources | ReplaySources]:
    """This machine's sources, or those of a captured node; started, and closed at the end of the block.

    `state_dir` is the daemon's own: only there the weights' sums are worked out; others read what it knows.
    """
    if scenario is not None and node is None:
        raise ConfigError("--scenario changes a captured node", remedy="give its folder with --node DIR")
    opened = _replay(node, scenario, on_event) if node is not None else _live(profile, on_event)
    launches = _launches(opened, profile, state_dir) if node is None else None
    try:
        opened.start()
        yield opened
    finally:
        if launches is not None:
            launches.close()
        opened.close()


def _launches(
    opened: LiveSources | ReplaySources, profile: NodeProfile, state_dir: Path | None
) -> LiveLaunches | None:
    """What looks at the launches of this machine's engines."""
    from agent.launch.evidence import attach_launches

    return attach_launches(opened, profile, state_dir or DEFAULT_STATE_DIR, work=state_dir is not None)


def _live(profile: NodeProfile, on_event: Callable[[str], None] | None) -> LiveSources:
    from agent.sources.live import live_sources

    return live_sources(profile, on_event=on_event)


def _replay(node: Path, scenario: Path | None, on_event: Callable[[str], None] | None) -> ReplaySources:
    from agent.sources.replay import replay_sources

    return replay_sources(node, scenario_file(node, scenario), on_event=on_event)


def scenario_file(node: Path, scenario: Path | None) -> Path | None:
    """The file of a scenario: as it was named, or the one of that name that the node brings along."""
    if scenario is None or scenario.exists() or scenario.name != str(scenario):
        return scenario
    own = node / "scenarios" / f"{scenario}.yaml"
    return own if own.is_file() else scenario
