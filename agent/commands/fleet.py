"""`nodegate fleet`: many nodes, by the shipped playbooks; `bringup` is here."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.commands.fleet_maintain import maintain_command
from agent.commands.fleet_options import (
    ArtifactsOption,
    CheckOption,
    ExtraOption,
    InventoryOption,
    LimitOption,
    VaultOption,
)
from agent.commands.fleet_run import default_artifacts, redactor_for, run_play, vault_key
from agent.commands.fleet_status import status_command

TagsOption = Annotated[
    str | None, typer.Option("--tags", metavar="PHASES", help="Only these phases, e.g. nic,kernel.")
]
PlaybookOption = Annotated[
    str,
    typer.Option(
        "--playbook", metavar="NAME", help="A shipped one (verify, pins, upgrade_agent, frontend) or a file."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    fleet = typer.Typer(help="Many nodes: the playbooks over an inventory.", no_args_is_help=True)
    fleet.command("status")(status_command)
    fleet.command("bringup")(bringup_command)
    fleet.command("maintain")(maintain_command)
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
    from agent.fleet.bringup import Request
    from agent.fleet.lock import locked
    from agent.fleet.shipped import ansible_root, is_beside, playbook
    from agent.fleet.targets import need_ansible, need_inventories, target_hosts

    need_ansible()
    need_inventories(inventory)
    key, play = vault_key(vault_password_file), playbook(playbook_name)
    config = ansible_root() / "ansible.cfg"
    pattern, hosts = target_hosts(inventory, limit, config, beside=is_beside(play))
    given = (limit, tags, check, vault_password_file, tuple(extra_vars or ()))
    request = Request(tuple(inventory), play, pattern, *given)
    with locked(inventory):
        redactor = redactor_for(request, key)
        raise typer.Exit(run_play(request, hosts, redactor, artifacts or default_artifacts()))
