"""`nodegate capture DIR`: record this machine, or a replayed one, as a node folder for `--node`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.commands import NodeOption, ProfileOption, ScenarioOption, profile_of_machine, scenario_file
from agent.console import Out
from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile
    from agent.sources.capture import Recording
    from agent.sources.node_folder import NodeFolder


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("capture")(capture)


def capture(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="New folder, or an earlier capture to replace.")
    ],
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace UUIDs, serial numbers, host name and addresses.")
    ] = False,
    profile: ProfileOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
) -> None:
    """Record a node for replay with `--node DIR`. GPUs, interfaces, kernel log, sysfs, and its profile."""
    from agent.sources import capture as recorder

    recorder.check_target(folder)
    file = profile or (_profile_of(node) if node else profile_of_machine())
    text = recorder.read_profile_text(file)
    recording, known = _record(node, scenario, file)
    if file is None and not (folder / "profile.yaml").is_file():
        recording.not_captured.append("profile.yaml: no profile; name one with --profile FILE")
    if redact:
        recording, text = recorder.redact(recording, text)
    recorder.write(recording, folder, text)
    _report(recording, folder, simulated=known is not None)


def _profile_of(node: Path) -> Path | None:
    from agent.sources.node_folder import load_node_folder

    return load_node_folder(node).profile


def _load(file: Path | None) -> tuple[NodeProfile | None, str | None]:
    """The profile, or why it cannot be used: a capture is also made to find out what is wrong."""
    from agent.profile_loader import load_profile

    try:
        return (None, None) if file is None else (load_profile(file).profile, None)
    except ConfigError as cause:
        return None, f"what the profile names (mounts, peers, Redfish): {cause}"


def _record(
    node: Path | None, scenario: Path | None, file: Path | None
) -> tuple[Recording, NodeFolder | None]:
    """Record this machine, or a node folder (then also given back)."""
    from agent.sources import capture as recorder

    profile, problem = _load(file)

    if node is None:
        if scenario is not None:
            raise ConfigError("--scenario changes a captured node", remedy="give its folder with --node DIR")
        from agent.sources.live import live_sources

        live = live_sources()
        try:
            live.start()
            return _with_problem(recorder.record(live.sources, profile=profile), problem), None
        finally:
            live.close()
    from agent.sources.replay import replay_sources

    replay = replay_sources(node, scenario_file(node, scenario))
    try:
        replay.start()
        recording = recorder.record(replay.sources, about=_about(replay.folder), profile=profile)
        return _with_problem(recording, problem), replay.folder
    finally:
        replay.close()


def _with_problem(recording: Recording, problem: str | None) -> Recording:
    if problem is not None:
        recording.not_captured.append(problem)
    return recording


def _about(folder: NodeFolder) -> dict[str, Any]:
    """What a node folder says of its node; a capture of it is no more real than it is itself."""
    keys = {"name", "platform", "description", "simulated", "redacted", "filled_in"}
    return folder.meta.model_dump(include=keys)


def _report(recording: Recording, folder: Path, *, simulated: bool) -> None:
    out = Out()
    out.banner(simulated)
    counts = (
        f"{len(recording.nvml['gpus'])} GPUs, {len(recording.net or {})} network interfaces, "
        f"{len(recording.tree.files)} files, {len(recording.kmsg or [])} kernel log lines"
    )
    out.line(f"{folder}: captured {counts}")
    for missing in recording.not_captured:
        out.line(f"not captured: {missing}")
