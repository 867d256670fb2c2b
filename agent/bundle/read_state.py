"""What the daemon knows and has kept: status, holds, journal, checklists, captures that it made at faults."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from agent.admin_client import AdminClient
from agent.bundle.parts import Case, NotHere, Piece, as_json, as_lines
from agent.errors import DaemonError, SourceUnavailable
from agent.holds import FILE_NAME as HOLDS
from agent.journal_read import read_faults, read_history
from agent.sources.fault_history import PartFault

JOURNAL = "journal.db"
#: More entries than these of one stretch are noise, and megabytes.
MOST_ENTRIES = 20_000
#: What is told of a fault that lies further back than was asked for.
BEFORE_FAULT_S, AFTER_FAULT_S = 3600.0, 900.0
_FAULTS_S = 90 * 86400.0
_MOST_RUNS = 20
_MOST_CAPTURES = 8


def read_status(case: Case) -> Iterator[Piece]:
    """What the daemon answers now, and the holds on disk. Raises SourceUnavailable without an answer."""
    problems = []
    if case.state_dir is not None and (case.state_dir / HOLDS).exists():
        try:
            yield Piece("status/holds.json", read_whole(case.state_dir / HOLDS, case.most_bytes))
        except SourceUnavailable as cause:
            problems.append(str(cause))
    if case.run_dir is None and not problems:
        raise NotHere("no daemon belongs to a captured node; name one with --run-dir")
    try:
        if case.run_dir is not None:
            yield Piece("status/status.json", as_json(AdminClient(case.run_dir).get("/status")), prompts=True)
    except DaemonError as cause:
        problems.append(str(cause))
    if problems:
        raise SourceUnavailable("; ".join(problems))


def read_journal(case: Case) -> Iterator[Piece]:
    """The journal since the time asked for, faults of parts, and the hour before an older newest fault."""
    if case.state_dir is None:
        raise NotHere("no journal belongs to a captured node; name one with --state-dir")
    path = case.state_dir / JOURNAL
    if not path.exists():
        raise SourceUnavailable(f"{path} is not there: no daemon has run with this --state-dir")
    faults = read_faults(path, case.now_wall_s - _FAULTS_S)
    yield Piece("journal/faults.jsonl", as_lines([_fault(fault) for fault in faults]), log=True)
    entries = read_history(path, case.since_wall_s, MOST_ENTRIES)
    note = f"the newest {MOST_ENTRIES} entries" if len(entries) >= MOST_ENTRIES else ""
    yield Piece("journal/history.jsonl", as_lines(entries), note, log=True, prompts=True)
    newest = max((fault.wall_s for fault in faults), default=case.now_wall_s)
    if newest >= case.since_wall_s:
        return
    around = [
        entry
        for entry in read_history(path, newest - BEFORE_FAULT_S, MOST_ENTRIES)
        if entry["wall_s"] <= newest + AFTER_FAULT_S
    ]
    note = "around the newest fault, which is older than was asked for"
    yield Piece("journal/around-newest-fault.jsonl", as_lines(around), note, log=True, prompts=True)


def _fault(fault: PartFault) -> dict[str, object]:
    return {
        "wall_s": fault.wall_s,
        "boot_id": fault.boot_id,
        "part": fault.part,
        "place": fault.place,
        "check": fault.check,
        "hardware": fault.hardware,
        "summary": fault.summary,
    }


def read_checklists(case: Case) -> Iterator[Piece]:
    """Records and reports of the newest runs of checklists."""
    folder = case.state_dir / "checklists" if case.state_dir is not None else None
    names = _folders(folder) if folder is not None else []
    if folder is None or not names:
        raise NotHere("no checklist was run")
    yield from _files_of_folders(folder, names, _MOST_RUNS, "checklists", case.most_bytes)


def read_captures(case: Case) -> Iterator[Piece]:
    """Captures that the daemon made when a gate closed on a fault, the newest first."""
    folder = case.state_dir / "captures" if case.state_dir is not None else None
    names = _folders(folder) if folder is not None else []
    if folder is None or not names:
        raise NotHere("the daemon has made no capture at a fault")
    yield from _files_of_folders(folder, names, _MOST_CAPTURES, "captures-at-faults", case.most_bytes)


def _folders(folder: Path) -> list[str]:
    """Folders in it by name, oldest first; none where there is no such folder. Raises SourceUnavailable.

    No links: engines run as the agent's user, and root would follow theirs to files of other people.
    """
    if folder.is_symlink():
        raise SourceUnavailable(f"{folder} is a link, which is not followed")
    try:
        here = [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
        return sorted(each.name for each in here if each.name[:1] != ".")
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise SourceUnavailable(f"{folder}: {cause.strerror or cause}") from cause


def _files_of_folders(
    parent: Path, names: list[str], most: int, target: str, most_bytes: int
) -> Iterator[Piece]:
    """Every file of the newest folders. Raises SourceUnavailable with what is not among them."""
    problems = [f"the newest {most} of {len(names)} are here"] if len(names) > most else []
    for name in reversed(names[-most:]):
        for path in sorted(each for each in (parent / name).rglob("*") if not each.is_dir()):
            try:
                data = read_whole(path, most_bytes)
            except SourceUnavailable as cause:
                problems.append(str(cause))
                continue
            yield Piece(f"{target}/{path.relative_to(parent)}", data)
    if problems:
        raise SourceUnavailable("; ".join(problems[:5]))


def read_whole(path: Path, most_bytes: int) -> bytes:
    """A regular file. Raises SourceUnavailable for another kind, one too large, or none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SourceUnavailable(f"{path} is not a regular file")
            data = file.read(most_bytes + 1)
    except OSError as cause:
        raise SourceUnavailable(f"{path}: {cause.strerror or cause}") from cause
    if len(data) > most_bytes:
        raise SourceUnavailable(f"{path}: larger than its share of {most_bytes} bytes")
    return data
