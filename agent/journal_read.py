"""What is read from the journal's SQLite file: history, faults by part, and what a restart takes back."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.errors import ParseError, SourceUnavailable
from agent.journal_store import BUSY_S
from agent.model import Result, ResultKey
from agent.result_json import result_from_dict
from agent.sources.fault_history import PartFault
from agent.track_memory import SubjectMemory, memory_from_dict

_KINDS = {"changes": "result", "gates": "gate", "operator": "operator", "marks": "mark", "traces": "trace"}
#: How many of the newest results are looked at for the recent changes: a start alone makes hundreds.
RECENT_ROWS = 5_000
_RECENT = (
    "SELECT 'result' AS kind, wall_s, check_id AS what, subject AS who, coalesce(before, 'new') AS before,"
    " verdict AS after, summary AS why FROM changes WHERE id > (SELECT max(id) FROM changes) - :rows AND"
    " coalesce(before, 'new') <> verdict AND (before IS NOT NULL OR verdict NOT IN ('PASS', 'SKIP'))"
    " ORDER BY id DESC LIMIT :limit",
    "SELECT 'gate' AS kind, wall_s, 'gate' AS what, engine AS who, before, state AS after, reason AS why"
    " FROM gates ORDER BY id DESC LIMIT :limit",
    "SELECT 'operator' AS kind, wall_s, 'operator' AS what, who, '' AS before, command AS after,"
    " reason AS why FROM operator ORDER BY id DESC LIMIT :limit",
    "SELECT 'mark' AS kind, wall_s, 'agent' AS what, '' AS who, '' AS before, mark AS after, summary AS why"
    " FROM marks ORDER BY id DESC LIMIT :limit",
    "SELECT 'trace' AS kind, wall_s, check_id AS what, '' AS who, '' AS before, 'broke' AS after,"
    " summary AS why FROM traces ORDER BY id DESC LIMIT :limit",
)
#: More faults than these say nothing more about a part.
MOST_FAULTS = 5_000


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for reading only. Raises SourceUnavailable when the journal cannot be read."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
    except sqlite3.Error as cause:
        raise SourceUnavailable(f"cannot read the journal {path}: {cause}") from cause
    try:
        connection.row_factory = sqlite3.Row
        yield connection
    except sqlite3.Error as cause:
        raise SourceUnavailable(f"cannot read the journal {path}: {cause}") from cause
    finally:
        connection.close()


def read_history(
    path: Path, since_wall_s: float, limit: int, part: str | None = None
) -> list[dict[str, Any]]:
    """The newest `limit` entries of all kinds since a time, oldest first; with `part` its results alone.

    A part is named by its id or the beginning of it (a GPU's UUID, a NIC's serial), or by its subject (gpu3).
    """
    entries: list[dict[str, Any]] = []
    with reading(path) as connection:
        for table in _KINDS if part is None else ("changes",):
            of_part = "" if part is None else "AND (subject = ? OR part = ? OR instr(part, ?) = 1)"
            sql = f"SELECT * FROM {table} WHERE wall_s >= ? {of_part} ORDER BY id DESC LIMIT ?"  # noqa: S608
            values = (since_wall_s, *((part,) * 3 if part is not None else ()), limit)
            rows = connection.execute(sql, values).fetchall()
            entries += [_entry(table, row) for row in reversed(rows)]
    entries.sort(key=lambda entry: entry["wall_s"])
    return entries[-limit:] if limit > 0 else []


def _entry(table: str, row: sqlite3.Row) -> dict[str, Any]:
    entry = {"kind": _KINDS[table], **{key: row[key] for key in row.keys() if key != "id"}}  # noqa: SIM118
    if "check_id" in entry:
        entry["check"] = entry.pop("check_id")
    if "evidence" in entry:
        with contextlib.suppress(ParseError):  # what cannot be read is shown as it stands
            entry["evidence"] = _parsed(entry["evidence"])
    return entry


def read_recent(path: Path, limit: int) -> list[dict[str, Any]]:
    """The newest `limit` entries, newest first, without evidence; first results that are good are left out.

    Bounded: of the results the newest `RECENT_ROWS` are looked at. Raises SourceUnavailable.
    """
    entries: list[dict[str, Any]] = []
    with reading(path) as connection:
        for sql in _RECENT:
            rows = connection.execute(sql, {"limit": limit, "rows": RECENT_ROWS}).fetchall()
            entries += [dict(row) for row in rows]
    entries.sort(key=lambda entry: -entry["wall_s"])
    return entries[:limit]


def read_faults(path: Path, since_wall_s: float) -> list[PartFault]:
    """The newest confirmed faults since a time, oldest first, over reboots. Raises SourceUnavailable."""
    sql = "SELECT * FROM faults WHERE wall_s >= ? ORDER BY wall_s DESC, id DESC LIMIT ?"
    with reading(path) as connection:
        rows = connection.execute(sql, (since_wall_s, MOST_FAULTS)).fetchall()
    return [
        PartFault(
            part=row["part"],
            place=row["place"],
            check=row["check_id"],
            wall_s=row["wall_s"],
            boot_id=row["boot_id"],
            summary=row["summary"],
            hardware=bool(row["hardware"]),
        )
        for row in reversed(rows)
    ]


def read_latest(path: Path, boot_id: str) -> list[Result]:
    """The newest result of every check and subject on this boot."""
    results = []
    for _, text in _latest(path, boot_id):
        with contextlib.suppress(ParseError):  # of an older nodegate: it will be measured anew
            results.append(result_from_dict(_parsed(text)))
    return results


def read_memories(path: Path, boot_id: str, now_mono_s: float) -> dict[ResultKey, SubjectMemory]:
    """What is to be remembered of each subject on this boot; what cannot be read or is yet to come is not."""
    memories = {}
    for key, text in _latest(path, boot_id):
        with contextlib.suppress(ParseError, AttributeError):
            memory = memory_from_dict(_parsed(text).get("memory"), now_mono_s)
            if memory is not None:
                memories[key] = memory
    return memories


def read_state(path: Path, name: str, boot_id: str) -> object:
    """What was kept under a name on this boot, None for nothing. Raises SourceUnavailable."""
    with reading(path) as connection:
        sql = "SELECT value FROM memory WHERE boot_id = ? AND name = ?"
        row = connection.execute(sql, (boot_id, name)).fetchone()
    try:
        return None if row is None else _parsed(row["value"])
    except ParseError:
        return None


def _parsed(text: Any) -> Any:
    """The JSON value of a stored text. Raises ParseError."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as cause:
        raise ParseError(f"not stored JSON: {type(cause).__name__}") from cause


def _latest(path: Path, boot_id: str) -> list[tuple[ResultKey, str]]:
    with reading(path) as connection:
        rows = connection.execute("SELECT * FROM latest WHERE boot_id = ?", (boot_id,)).fetchall()
    return [((row["check_id"], row["subject"]), row["result"]) for row in rows]
