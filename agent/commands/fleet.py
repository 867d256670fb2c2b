"""`nodegate fleet bringup`: many nodes, by the shipped playbooks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands.fleet_options import (
    ArtifactsOption,
    CheckOption,
    ExtraOption,
    InventoryOption,
    LimitOption,
    VaultOption,
)
from agent.commands.fleet_status import status_command
from agent.console import Out
from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.fleet.bringup import Request
    from agent.fleet.secret_values import Redactor

TagsOption = Annotated[
    str | None, typer.Option("--tags", metavar="PHASES", help="Only these phases, e.g. nic,kernel.")
]
PlaybookOption = Annotated[
    str,
    typer.Option("--playbook", metavar="NAME", help="A shipped one (verify, pins, upgrade_agent) or a file."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    fleet = typer.Typer(help="Many nodes: the playbooks over an inventory.", no_args_is_help=True)
    fleet.command("status")(status_command)
    fleet.command("bringup")(bringup_command)
    app.add_typer(fleet, name="fleet")


def bringup_command(
    inventory: InventoryOption,
    limit: LimitOption = None,
    tags: TagsOption = None,
    check: CheckOption = False,
    vault_password_file: VaultOption = None,
    artifacts: ArtifactsOption = None,
    extra_vars: ExtraOption = None,
    playbook_name: PlaybookOption = "site",
) -> None:
    """Bring nodes from bare to serving, phase by phase. A host that fails stops; a rerun goes on from there.

    Exit code 0: every host is done; 1: a host is not; 3: it could not run; 130: stopped by Ctrl-C.
    """
    from agent.fleet.bringup import Request, known_secrets
    from agent.fleet.lock import locked, site_of
    from agent.fleet.secret_values import Redactor, vault_secrets
    from agent.fleet.shipped import ansible_root, playbook
    from agent.fleet.targets import need_ansible, need_inventories, target_hosts

    need_ansible()
    need_inventories(inventory)
    if vault_password_file is not None and not vault_password_file.is_file():
        raise ConfigError(
            "there is no such key file", where=str(vault_password_file), remedy="inventories/README.md"
        )
    play = playbook(playbook_name)
    pattern, hosts = target_hosts(inventory, limit, ansible_root() / "ansible.cfg")
    given = (limit, tags, check, vault_password_file, tuple(extra_vars or ()))
    request = Request(tuple(inventory), play, pattern, *given)
    key = vault_password_file or _path(os.environ.get("ANSIBLE_VAULT_PASSWORD_FILE"))
    with locked(inventory):
        sites = [site_of(source) for source in inventory]
        redactor = Redactor(known_secrets(request, [*vault_secrets(sites, key)]))
        raise typer.Exit(_run(request, hosts, redactor, artifacts or _default_artifacts()))


def _run(request: Request, hosts: list[str], redactor: Redactor, parent: Path) -> int:
    """Run it, and say what came of it whatever happens."""
    from agent.fleet.artifacts import Artifacts
    from agent.fleet.bringup import Run, Stop, run_name
    from agent.fleet.progress import Progress
    from agent.fleet.show import show_summary, summary_json, view_of

    out, progress = Out(), Progress.of(hosts)
    kept = Artifacts(parent, run_name(), redactor)
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


def _default_artifacts() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "nodegate" / "fleet"
