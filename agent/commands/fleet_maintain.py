"""`nodegate fleet maintain`: nodes out of service for people who work on them, and the way back."""

from __future__ import annotations

import getpass
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
from agent.commands.fleet_run import default_artifacts, redactor_for, run_play, vault_key
from agent.console import Out
from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.fleet.bringup import Request
    from agent.fleet.maintain import Order
    from agent.fleet.secret_values import Redactor
    from agent.fleet.site import Site

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why; everyone who looks is told.")
]
FinishOption = Annotated[
    bool, typer.Option("--finish", help="The way back: run the post-maintenance checklist.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="The way back: go on with the checklist that was begun.")
]
AnswerOption = Annotated[
    list[str] | None,
    typer.Option("--answer", metavar="STEP=TEXT", help="Answer of a question of the checklist."),
]
WhoOption = Annotated[
    str | None, typer.Option("--who", metavar="NAME", help="Who orders and answers [the login name].")
]


def maintain_command(
    inventory: InventoryOption,
    limit: LimitOption = None,
    reason: ReasonOption = None,
    finish: FinishOption = False,
    resume: ResumeOption = False,
    answer: AnswerOption = None,
    who: WhoOption = None,
    check: CheckOption = False,
    vault_password_file: VaultOption = None,
    artifacts: ArtifactsOption = None,
    extra_vars: ExtraOption = None,
) -> None:
    """Take nodes into maintenance, drained first, if the rest can carry the load; or give them back.

    Exit code 0: done on every host; 1: on a host it is not; 3: refused, or it could not run; 130: Ctrl-C.
    """
    from agent.fleet.bringup import Request, run_name
    from agent.fleet.lock import locked
    from agent.fleet.maintain import order_of
    from agent.fleet.shipped import ansible_root, playbook
    from agent.fleet.site import read_site
    from agent.fleet.targets import need_ansible, need_inventories

    order = order_of(reason, who or getpass.getuser(), finish=finish, resume=resume, answers=answer or ())
    if not limit:
        raise ConfigError("which nodes is not said", remedy="name them: --limit HOSTS")
    need_ansible()
    need_inventories(inventory)
    key, name, parent = vault_key(vault_password_file), run_name(), artifacts or default_artifacts()
    with locked(inventory):
        site = read_site(inventory, limit, ansible_root() / "ansible.cfg")
        if order.way == "enter":
            _show_plan(site)
        variables = order.variables((parent / name / "reports").absolute())
        request = Request(
            tuple(inventory),
            playbook(order.play),
            site.pattern,
            limit,
            check=check,
            vault_password_file=vault_password_file,
            extra=(variables, *(extra_vars or ())),
        )
        raise typer.Exit(_run(request, site, order, redactor_for(request, key), parent, name))


def _show_plan(site: Site) -> None:
    """Refuse before anything is begun, or say what is left."""
    from agent.fleet.capacity import look

    for text in look(site, site.asked).lines:
        Out().line(text)


def _run(request: Request, site: Site, order: Order, redactor: Redactor, parent: Path, name: str) -> int:
    """Run it; however it ends, say how each node stands."""
    from agent.fleet.ask import asked
    from agent.fleet.maintain import where_it_stands

    out = Out()
    try:
        return run_play(request, list(site.asked), redactor, parent, name)
    finally:
        answers = asked(site.hosts[host] for host in site.asked)
        inventory = str(request.inventories[0])
        for host in site.asked:
            out.line(where_it_stands(host, answers[host], inventory))
        if order.way != "enter" and (parent / name / "reports").is_dir():
            out.line(f"reports: {parent / name / 'reports'}")
