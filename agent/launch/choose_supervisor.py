"""Which way an engine is supervised: by systemd where agent and unit are set up for it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.launch.engine_log import EngineLog
from agent.launch.engine_run import Supervisor
from agent.launch.supervisor import ProcessGroupSupervisor
from agent.launch.systemd_supervisor import SystemdSupervisor
from agent.launch.unit_plan import FOLDER
from agent.launch.unit_proof import unit_name
from agent.node_parts import Supervision
from agent.node_profile import NodeProfile
from agent.sources.cgroup import is_system_service, own_group
from agent.sources.systemd import Systemctl

#: Where systemd looks for units of the system (systemd.unit(5)).
UNIT_FOLDERS = tuple(
    Path(folder)
    for folder in (
        "/etc/systemd/system",
        "/run/systemd/system",
        "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
    )
)


def make_supervisor(
    profile: NodeProfile,
    name: str,
    *,
    state_dir: Path,
    run_dir: Path | None,
    log: EngineLog,
    simulated: bool = False,
) -> Supervisor:
    """The supervisor of one engine, as the profile's `supervision` says.

    Units need a `run_dir` for their plans, and a replayed node has none.
    """
    wanted = profile.supervision
    if wanted is Supervision.AUTO:
        found = run_dir is not None and units_are_set_up(os.environ, own_group(), run_dir, UNIT_FOLDERS)
        wanted = Supervision.SYSTEMD if found else Supervision.PROCESS
    if wanted is Supervision.PROCESS or simulated or run_dir is None:
        return ProcessGroupSupervisor(name, state_dir=state_dir, log=log)
    return SystemdSupervisor(name, systemd=Systemctl(), state_dir=state_dir, run_dir=run_dir, log=log)


def units_are_set_up(
    environ: Mapping[str, str], group: str | None, run_dir: Path, folders: Sequence[Path]
) -> bool:
    """Whether this agent is a system service itself, and the engines' unit runs the plans of its `run_dir`.

    The unit of another agent's engines must not be taken for this one's.
    """
    if not environ.get("INVOCATION_ID") or not is_system_service(group):
        return False
    plans = f" {run_dir}/{FOLDER}/%i.json"
    return any(plans in _text(folder / unit_name("")) for folder in folders)


def _text(path: Path) -> str:
    """A unit file, empty when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
