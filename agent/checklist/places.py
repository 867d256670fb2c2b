"""Where a run's profile, records and daemon are: as named, else as the daemon says, else by default."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.checklist.daemon_link import SocketLink
from agent.checklist.load import own_of
from agent.commands import DEFAULT_RUN_DIR, DEFAULT_STATE_DIR, profile_of_machine, resolve_profile
from agent.errors import ConfigError, DaemonError
from agent.profile_loader import LoadedProfile, load_profile


@dataclass(frozen=True)
class Places:
    """What a run works with."""

    loaded: LoadedProfile
    state_dir: Path
    daemon: SocketLink | None
    #: The captured node that is used instead of this machine.
    node: Path | None = None
    scenario: Path | None = None
    #: When the scenario of a simulated daemon began: the run sees the node at the same moment.
    scenario_began_mono_s: float | None = None
    #: Whether a daemon runs the same replay, at whose moment the run is to be.
    joins: bool = False


def find_places(
    *,
    profile: Path | None,
    overlays: Sequence[Path],
    node: Path | None,
    scenario: Path | None,
    run_dir: Path | None,
    state_dir: Path | None,
) -> Places:
    """The places of a run. Raises ConfigError, or DaemonError when the daemon does not answer."""
    if node is not None and run_dir is None:
        loaded = resolve_profile(profile, overlays, node)
        return Places(loaded, state_dir or _state_of(node), None, node, scenario)
    link = SocketLink(run_dir or DEFAULT_RUN_DIR)
    told = link.whereabouts()
    replay: dict[str, Any] = told["replay"] or {}
    if node is None and replay:
        node = Path(replay["node"])
        scenario = scenario or (Path(replay["scenario"]) if replay["scenario"] else None)
    elif node is not None and not replay:
        raise ConfigError(
            "--node with --run-dir: this daemon runs on a real node", remedy="leave one of them out"
        )
    files = [Path(file) for file in told["files"]]
    if profile is not None or overlays or not files:
        loaded = resolve_profile(profile, overlays, node)
    else:
        loaded = load_profile(files[-1], overlays=files[:-1])
    if loaded.hash != told["profile_hash"]:
        raise ConfigError(
            f"the daemon runs on profile {str(told['profile_hash'])[:16]}, this one is {loaded.hash[:16]}",
            remedy="reload it: systemctl reload nodegate",
        )
    began_s = replay.get("began_mono_s")
    return Places(
        loaded, state_dir or Path(told["state_dir"]), link, node, scenario, began_s, joins=bool(replay)
    )


def _state_of(node: Path) -> Path:
    """Where records of a captured node are kept, which is not changed itself."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "nodegate" / (node.resolve().name or "node")


def record_folder(state_dir: Path | None, run_dir: Path | None, node: Path | None) -> Path:
    """The state folder whose records are shown."""
    if state_dir is not None:
        return state_dir
    if node is not None and run_dir is None:
        return _state_of(node)
    try:
        return Path(SocketLink(run_dir or DEFAULT_RUN_DIR).whereabouts()["state_dir"])
    except DaemonError:
        if run_dir is not None:
            raise
        return DEFAULT_STATE_DIR


def own_folder(profile: Path | None, overlays: Sequence[Path] | None, node: Path | None) -> Path | None:
    """The site's folder of checklists, None without one or without a profile."""
    if profile is None and node is None and profile_of_machine() is None:
        return None
    return own_of(resolve_profile(profile, overlays, node))


def node_name(places: Places) -> str:
    """The node's name for its records."""
    if places.loaded.profile.node:
        return places.loaded.profile.node
    return places.node.resolve().name if places.node is not None else socket.gethostname()
