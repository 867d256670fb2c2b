"""`nodegate pins show|record|accept`: which GPU belongs into which slot, and the topology with it."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands import (
    NodeOption,
    OverlayOption,
    ProfileOption,
    ScenarioOption,
    open_sources,
    resolve_profile,
)

if TYPE_CHECKING:
    from agent.pins import Seen
    from agent.pins_decide import Decision

EXIT_FAIL = 1
EXIT_UNKNOWN = 2
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write a profile layer for --overlay, instead of printing."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    pins = typer.Typer(help="The GPUs that belong into the slots of this node.", no_args_is_help=True)
    pins.command("show")(show_command)
    pins.command("record")(record_command)
    pins.command("accept")(accept_command)
    app.add_typer(pins, name="pins")


def show_command(
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
) -> None:
    """Show what is pinned and what is found, slot by slot.

    Exit code 0: as pinned, or nothing is pinned yet; 1: something differs; 2: the machine cannot be read.
    """
    from agent.console import Out
    from agent.pins_decide import decide

    seen, simulated = _look(profile, overlay, node, scenario)
    decision = decide(seen)
    if as_json:
        told = {"schema": 1, "simulated": simulated, **seen.to_json(), "differences": list(decision.refusals)}
        typer.echo(json.dumps(told, indent=2))
    else:
        out = Out()
        out.banner(simulated, str(node or ""))
        out.table(["slot", "pinned", "found", "serial", "PCI"], _rows(seen))
        for part in decision.first:
            out.line(f"{part}: not recorded yet; `nodegate pins record` does it")
        for line in decision.refusals:
            out.line(line, "bold red")
    if seen.faults:
        raise typer.Exit(EXIT_UNKNOWN)
    if decision.refusals:
        raise typer.Exit(EXIT_FAIL)


def record_command(
    out: OutOption = None,
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
) -> None:
    """Print the GPUs and the topology as YAML for the profile, on first use: what differs is refused."""
    _settle((), out, profile, overlay, node, scenario)


def accept_command(
    names: Annotated[
        list[str],
        typer.Argument(metavar="SLOT|topology|all", help="What may differ from what was recorded."),
    ],
    out: OutOption = None,
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
) -> None:
    """As record, and take the named slots or the topology as they are now, after a change on purpose."""
    from agent.pins_decide import refuse_names

    refuse_names(names)
    _settle(tuple(names), out, profile, overlay, node, scenario)


def _settle(
    replace: tuple[str, ...],
    out: Path | None,
    profile: Path | None,
    overlay: list[Path] | None,
    node: Path | None,
    scenario: Path | None,
) -> None:
    from agent.console import Out
    from agent.pins import layer_text
    from agent.pins_decide import decide
    from agent.topo.new_file import write_whole

    seen, simulated = _look(profile, overlay, node, scenario)
    decision = decide(seen, replace)
    if decision.refusals:
        _refuse(decision)
    for line in decision.changes:
        typer.echo(f"accepted: {line}", err=True)
    origin = f"the node folder {node}, SIMULATED" if node is not None else socket.gethostname()
    text = layer_text(dict(decision.pins), decision.topology, origin)
    Out(sys.stderr).banner(simulated, str(node or ""))
    if out is None:
        typer.echo(text, nl=False)
        return
    write_whole(out, text)
    typer.echo(f"{out}: written; give it as --overlay, or put it into the profile")


def _refuse(decision: Decision) -> None:
    for line in decision.refusals:
        typer.echo(f"nodegate: {line}", err=True)
    if decision.names:
        names = " ".join(decision.names)
        typer.echo(f"nodegate: if that is on purpose: nodegate pins accept {names} --out FILE", err=True)
    raise typer.Exit(EXIT_FAIL if decision.names else EXIT_UNKNOWN)


def _look(
    profile: Path | None, overlay: list[Path] | None, node: Path | None, scenario: Path | None
) -> tuple[Seen, bool]:
    from agent.pins import look

    loaded = resolve_profile(profile, overlay, node).profile
    with open_sources(loaded, node=node, scenario=scenario) as opened:
        return look(opened.sources, loaded), opened.sources.simulated


def _rows(seen: Seen) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for slot in sorted({*seen.pinned, *seen.found}):
        pinned, found = seen.pinned.get(slot), seen.found.get(slot)
        same = pinned is not None and found is not None and pinned.uuid == found.uuid
        was = "same" if same else pinned.uuid if pinned else "-"
        if found is None:
            rows.append((slot, was, "none", "-", "-"))
        else:
            rows.append((slot, was, found.uuid, found.serial or "-", found.pci_bus_id))
    return rows
