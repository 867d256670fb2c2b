"""One run of a playbook over hosts, as the commands of `nodegate fleet` share it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agent.console import Out
from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.fleet.bringup import Request
    from agent.fleet.secret_values import Redactor


def vault_key(given: Path | None) -> Path | None:
    """The inventory's key, as given or from the environment. ConfigError when the one given is not there."""
    if given is not None and not given.is_file():
        raise ConfigError("there is no such key file", where=str(given), remedy="inventories/README.md")
    return given or _path(os.environ.get("ANSIBLE_VAULT_PASSWORD_FILE"))


def redactor_for(request: Request, key: Path | None) -> Redactor:
    """Hides every secret that this run may come across. ConfigError for a vault that lies open."""
    from agent.fleet.bringup import known_secrets
    from agent.fleet.lock import site_of
    from agent.fleet.secret_values import Redactor, refuse_plain_vaults, vault_secrets

    sites = [site_of(source) for source in request.inventories]
    refuse_plain_vaults(sites)
    return Redactor(known_secrets(request, [*vault_secrets(sites, key)]))


def run_play(
    request: Request, hosts: list[str], redactor: Redactor, parent: Path, name: str | None = None
) -> int:
    """Run it, and say what came of it whatever happens; kept in folder `name` of `parent`."""
    from agent.fleet.artifacts import Artifacts
    from agent.fleet.bringup import Run, Stop, run_name
    from agent.fleet.progress import Progress
    from agent.fleet.show import show_summary, summary_json, view_of

    out, progress = Out(), Progress.of(hosts)
    kept = Artifacts(parent, name or run_name(), redactor)
    count = f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}"
    out.line(f"{count}{', nothing is changed' if request.check else ''}; kept in {kept.folder}")
    code = 3
    try:
        code = Run(request, progress, view_of(out, progress), kept, redactor, Stop()).go()
    finally:
        now_s = time.monotonic()
        about = {"schema": 1, "exit_code": code, "check": request.check}
        kept.close({**about, "hosts": summary_json(progress, now_s)})
        show_summary(out, progress, now_s)
    return code


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None


def default_artifacts() -> Path:
    """Where runs are kept, unless another folder is named."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "nodegate" / "fleet"
