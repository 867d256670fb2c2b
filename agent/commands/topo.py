"""`nodegate topo show|write|verify|record`: the NCCL topology file, and what topology the profile expects."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from agent.commands import (
    NodeOption,
    OverlayOption,
    ProfileOption,
    ScenarioOption,
    open_sources,
    resolve_profile,
)
from agent.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile
    from agent.sources import Sources

EXIT_FAIL = 1
EXIT_UNKNOWN = 2
#: A file of 255 elements has far less.
LONGEST_FILE_B = 1 << 20
T = TypeVar("T")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The topology file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    topo = typer.Typer(
        help="The NCCL topology file and the topology that the profile expects.", no_args_is_help=True
    )
    topo.command("show")(show_command)
    topo.command("write")(write_command)
    topo.command("verify")(verify_command)
    topo.command("record")(record_command)
    app.add_typer(topo, name="topo")


def show_command(
    xml: Annotated[bool, typer.Option("--xml", help="The file that `topo write` would write.")] = False,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
) -> None:
    """Show where GPUs and RDMA cards sit. NUMA node, switch, link and NVLinks of each, as NCCL sees them."""
    from agent.console import Out
    from agent.topo.machine import read_machine
    from agent.topo.view import rows
    from agent.topo.write_file import render

    system, simulated = _read(read_machine, profile, overlay, node, scenario)
    if xml:
        sys.stdout.write(render(system))
        return
    found = rows(system)
    if as_json:
        devices = [row.to_json() for row in found]
        sys.stdout.write(
            json.dumps({"schema": 1, "simulated": simulated, "devices": devices}, indent=2) + "\n"
        )
        return
    out = Out()
    out.banner(simulated, str(node or ""))
    out.table(["what", "PCI", "NUMA", "behind", "link", "NVLinks", "UUID"], [row.cells() for row in found])


def write_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; replaced as a whole.")],
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
) -> None:
    """Write the topology file of the machine as it is. What the profile expects is told if it differs."""
    from agent.topo.machine import read_machine
    from agent.topo.new_file import write_whole
    from agent.topo.write_file import render

    def read(sources: Sources, loaded: NodeProfile) -> tuple[str, list[str], list[str]]:
        return (render(read_machine(sources, loaded)), *_expected(sources, loaded))

    (text, wrong, unknown), simulated = _read(read, profile, overlay, node, scenario)
    write_whole(file, text)
    _banner(simulated, node)
    typer.echo(f"{file}: written")
    for line in [*wrong, *unknown]:
        typer.echo(f"not as topology.expected has it: {line}", err=True)


def verify_command(
    file: FileArgument,
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
) -> None:
    """Compare a topology file with the machine, and the machine with what the profile expects.

    Exit code 0 all fit, 1 something differs or NCCL could not read the file, 2 the machine cannot be read.
    """
    from agent.topo.verify import against_machine

    text = _text(file)

    def read(sources: Sources, loaded: NodeProfile) -> tuple[list[str], list[str]]:
        wrong, unknown = _expected(sources, loaded)
        expected = [f"machine and profile: {line}" for line in wrong]
        try:
            differences = [f"{file}: {each}" for each in against_machine(sources, loaded, text, str(file))]
        except ConfigError as cause:
            return [f"NCCL cannot read it: {cause}", *expected], unknown
        return [*differences, *expected], unknown

    (wrong, unknown), simulated = _read(read, profile, overlay, node, scenario)
    _banner(simulated, node)
    for line in [*wrong, *(f"unknown: {line}" for line in unknown)]:
        typer.echo(line)
    if wrong:
        raise typer.Exit(EXIT_FAIL)
    if unknown:
        raise typer.Exit(EXIT_UNKNOWN)
    typer.echo(f"{file}: fits the machine")


def record_command(
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", metavar="FILE", help="Write a profile layer for --overlay, instead of printing."
        ),
    ] = None,
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    scenario: ScenarioOption = None,
) -> None:
    """Print the machine's topology as YAML for the profile. An operator looks it over and puts it there."""
    from agent.topo.facts import record
    from agent.topo.new_file import write_whole
    from agent.topo.snippet import snippet

    expected, simulated = _read(record, profile, overlay, node, scenario)
    origin = f"the node folder {node}, SIMULATED" if node is not None else socket.gethostname()
    text = snippet(expected, origin)
    if write is None:
        sys.stdout.write(text)
        return
    write_whole(write, text)
    _banner(simulated, node)
    typer.echo(f"{write}: written; look it over, then give it as --overlay or put it into the profile")


def _read(
    look: Callable[[Sources, NodeProfile], T],
    profile: Path | None,
    overlay: Sequence[Path] | None,
    node: Path | None,
    scenario: Path | None,
) -> tuple[T, bool]:
    """What a look at the machine gives, and whether it is a captured one; exit 2 where it cannot be read."""
    loaded = resolve_profile(profile, overlay, node).profile
    with open_sources(loaded, node=node, scenario=scenario) as opened:
        try:
            return look(opened.sources, loaded), opened.sources.simulated
        except SourceError as cause:
            typer.echo(f"nodegate: the topology of this machine cannot be read: {cause}", err=True)
            raise typer.Exit(EXIT_UNKNOWN) from cause


def _expected(sources: Sources, profile: NodeProfile) -> tuple[list[str], list[str]]:
    """What is not as recorded, and what could not be told; both empty where nothing is recorded."""
    from agent.topo.expected import judge

    wrong, unknown = [], []
    for judged in judge(sources, profile):
        wrong += [f"{judged.subject}: {problem.text}" for problem in judged.problems]
        if judged.unknown is not None:
            unknown.append(f"{judged.subject}: {judged.unknown}")
    return wrong, unknown


def _text(file: Path) -> str:
    try:
        if not file.is_file():
            raise ConfigError("is not a file", where=str(file), remedy="write it with `nodegate topo write`")
        with file.open("rb") as stream:
            data = stream.read(LONGEST_FILE_B + 1)
    except OSError as cause:
        problem = f"cannot be read: {cause.strerror or cause}"
        raise ConfigError(problem, where=str(file), remedy="check its permissions") from cause
    if len(data) > LONGEST_FILE_B:
        raise ConfigError(
            f"is longer than {LONGEST_FILE_B} bytes", where=str(file), remedy="name another file"
        )
    return data.decode(errors="replace")


def _banner(simulated: bool, node: Path | None) -> None:
    """On stderr, for stdout is for scripts."""
    from agent.console import Out

    Out(sys.stderr).banner(simulated, str(node or ""))
