"""`nodegate fleet status`: how the nodes of an inventory stand, worst first."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from agent.commands.fleet_options import InventoryOption, LimitOption
from agent.console import Out
from agent.errors import ConfigError

WATCH_S = 5.0
#: Erase the terminal and begin at its top.
_CLEAR = "\x1b[2J\x1b[H"
LONGEST_S = 60.0
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="S", help="Seconds that one agent may take to answer.")
]
ConcurrentOption = Annotated[
    int, typer.Option("--concurrent", metavar="N", help="Agents that are asked at the same time.")
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Show it anew every 5 s, until Ctrl-C.")]
AllOption = Annotated[bool, typer.Option("--all", help="Show also every node that serves.")]


def status_command(
    inventory: InventoryOption,
    limit: LimitOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 3.0,
    concurrent: ConcurrentOption = 500,
    watch: WatchOption = False,
    every: AllOption = False,
) -> None:
    """Ask every node's agent how it stands; nothing is changed. What needs a person comes first.

    Exit code 0: all ready; 1: something is not; 2: nothing worse than unknown; 3: it could not run.
    """
    from agent.fleet.targets import need_ansible, need_inventories

    if not 0 < timeout_s <= LONGEST_S or concurrent < 1:
        raise ConfigError(
            f"--timeout {timeout_s:g} --concurrent {concurrent} cannot be",
            remedy=f"a time up to {LONGEST_S:g} s, and 1 or more agents at a time",
        )
    need_ansible()
    need_inventories(inventory)
    while True:
        code = _once(inventory, limit, as_json, timeout_s, concurrent, watch, every)
        if not watch:
            raise typer.Exit(code)
        time.sleep(WATCH_S)


def _once(
    inventory: list[Path],
    limit: str | None,
    as_json: bool,
    timeout_s: float,
    concurrent: int,
    watch: bool,
    every: bool,
) -> int:
    from agent.fleet.ask import asked
    from agent.fleet.shipped import ansible_root
    from agent.fleet.site import read_site
    from agent.fleet.standing import fleet_of
    from agent.fleet.status_show import fleet_json, show_fleet

    began_s = time.monotonic()
    site = read_site(inventory, limit, ansible_root() / "ansible.cfg")
    names = site.with_mates(site.asked)
    answers = asked((site.hosts[name] for name in names), timeout_s=timeout_s, concurrent=concurrent)
    fleet, took_s = fleet_of(site, answers), time.monotonic() - began_s
    if as_json:
        typer.echo(json.dumps(fleet_json(fleet, took_s)))
        return fleet.exit_code
    if watch and sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    show_fleet(Out(), fleet, took_s=took_s, every=every)
    return fleet.exit_code
