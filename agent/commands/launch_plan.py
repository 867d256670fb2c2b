"""`nodegate launch plan ENGINE`: the memory ledger of a launch, with its arithmetic."""

from __future__ import annotations

import gc
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.commands import NodeOption, OverlayOption, ProfileOption, open_sources, resolve_profile
from agent.console import Out
from agent.errors import ConfigError, LaunchError, SourceError

if TYPE_CHECKING:
    from agent.launch.checkpoint.ledger import Ledger
    from agent.launch.checkpoint.scan import Scan
    from agent.node_profile import Engine
    from agent.sources.launch_reading import Problem

EXIT = {"possible": 0, "impossible": 1, "unknown": 2}
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Folder of the weights [launch.checkpoint.path, or the model].",
        show_default=False,
    ),
]
StageIndexOption = Annotated[
    bool,
    typer.Option(
        "--write-stage-index",
        help="Write launch.checkpoint.stage_index, the read-only index of this node's stages.",
    ),
]


class LedgerFormat(StrEnum):
    """How the ledger is written."""

    TABLE = "table"
    JSON = "json"


def plan_command(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="Engine of the profile.")],
    profile: ProfileOption = None,
    overlay: OverlayOption = None,
    node: NodeOption = None,
    checkpoint: CheckpointOption = None,
    ledger_format: Annotated[
        LedgerFormat, typer.Option("--format", help="Form of the output.")
    ] = LedgerFormat.TABLE,
    write_stage_index: StageIndexOption = False,
) -> None:
    """Reckon whether the weights fit, from their headers. Exit code 0 possible, 1 impossible, 2 unknown."""
    from agent.launch.checkpoint.reports import ledger_of
    from agent.launch.checkpoint.scan import scan
    from agent.launch.checkpoint.spread import spread_of

    loaded = resolve_profile(profile, overlay, node)
    known = loaded.profile.engines.get(engine)
    if known is None:
        names = ", ".join(loaded.profile.engines) or "none"
        raise ConfigError(f"the profile has no engine {engine}", remedy=f"it has: {names}")
    folder = _folder(known, checkpoint)
    spread = spread_of(engine, known)
    if write_stage_index:
        _write_index(known, folder, engine)
    collecting = gc.isenabled()
    gc.disable()  # it would go through hundreds of thousands of tensors again and again, and find nothing
    try:
        found = scan(folder, spread, known.launch.checkpoint)
    except SourceError as cause:
        _tell_unknown(
            engine, str(cause), as_json=ledger_format is LedgerFormat.JSON, simulated=node is not None
        )
        raise typer.Exit(EXIT["unknown"]) from cause
    finally:
        if collecting:
            gc.enable()
    with open_sources(loaded.profile, node=node) as opened:
        ledger = ledger_of(loaded.profile, engine, opened.sources, found, spread)
        simulated = opened.sources.simulated
    report = plan_json(engine, found, ledger, simulated=simulated)
    if ledger_format is LedgerFormat.JSON:
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(found, ledger, report, simulated=simulated)
    raise typer.Exit(EXIT[report["outcome"]])


def _tell_unknown(engine: str, cause: str, *, as_json: bool, simulated: bool) -> None:
    """Why there is no ledger."""
    why = f"{cause}; --checkpoint DIR names another folder"
    if as_json:
        told = {"schema": 1, "engine": engine, "simulated": simulated, "outcome": "unknown", "reason": why}
        typer.echo(json.dumps(told, indent=2))
    typer.echo(f"unknown: {why}", err=True)


def _folder(engine: Engine, given: Path | None) -> Path:
    """The folder of the weights: as it was named, or as the profile has it."""
    from agent.launch.checkpoint.where import weights_folder

    if given is not None:
        if not given.is_dir():
            raise ConfigError("is not a folder", where=str(given), remedy="give the folder of the weights")
        return given
    found = weights_folder(engine.launch)
    if found is None:
        raise ConfigError(
            f"the model {engine.launch.model} is no folder on this host",
            remedy="set launch.checkpoint.path, or give --checkpoint DIR",
        )
    return Path(found)


def _write_index(engine: Engine, folder: Path, name: str) -> None:
    """Make the stage index."""
    from agent.launch.checkpoint.inventory import read_inventory
    from agent.launch.checkpoint.spread import spread_of
    from agent.launch.checkpoint.stage_index import write_stage_index

    target = engine.launch.checkpoint.stage_index
    if target is None:
        raise ConfigError(
            f"engine {name} has no launch.checkpoint.stage_index", remedy="set it to the file to be written"
        )
    try:
        files = write_stage_index(Path(target), read_inventory(folder), spread_of(name, engine))
    except SourceError as cause:
        raise LaunchError(f"no stage index is written: {cause}") from cause
    typer.echo(f"{target}: written, names {files} files", err=True)


def plan_json(engine: str, found: Scan, ledger: Ledger, *, simulated: bool) -> dict[str, Any]:
    """The ledger for programs. A checkpoint that is not whole makes a launch impossible too."""
    from agent.sources.launch_reading import Severity

    problems = (*found.problems, *ledger.book.problems)
    outcome = str(ledger.outcome)
    if any(problem.severity is Severity.ERROR for problem in problems):
        outcome = "impossible"
    return {
        "schema": 1,
        "engine": engine,
        "simulated": simulated,
        "checkpoint": str(found.folder),
        "outcome": outcome,
        "unknown": list(ledger.unknown),
        "lines": [
            {"label": line.label, "arithmetic": line.arithmetic, "gib": _rounded(line.value_gib)}
            for line in ledger.book.lines
        ],
        "facts": {key: round(value, 3) for key, value in ledger.facts.items()},
        "problems": [_problem(problem) for problem in problems],
        "notes": list(ledger.book.notes),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _problem(problem: Problem) -> dict[str, str]:
    return {
        "severity": str(problem.severity),
        "where": problem.where,
        "text": problem.text,
        "remedy": problem.remedy,
    }


def _show(found: Scan, ledger: Ledger, report: dict[str, Any], *, simulated: bool) -> None:
    """The ledger for people."""
    out = Out()
    out.banner(simulated)
    out.line(f"engine {report['engine']}, weights in {found.folder}")
    rows = [
        (line.label, "" if line.value_gib is None else f"{line.value_gib:.3f}", line.arithmetic)
        for line in ledger.book.lines
    ]
    out.table(("figure", "GiB", "how it is reckoned"), rows)
    for note in ledger.book.notes:
        out.line(f"note: {note}")
    for reason in ledger.unknown:
        out.line(f"unknown: {reason}")
    for problem in (*found.problems, *ledger.book.problems):
        out.line(f"{problem.severity}: {problem}")
    out.line(f"{report['outcome'].upper()}: {_VERDICTS[report['outcome']]}")


_VERDICTS = {
    "possible": "nothing that was reckoned keeps it from being launched",
    "impossible": "the launch cannot succeed as it is",
    "unknown": "what was not read could still make it impossible",
}
