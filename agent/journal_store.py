"""The journal's SQLite file: schema, rows in and out. Used by the journal's writer thread and by readers.

WAL keeps every committed row through a SIGKILL; rows of an operator or a gate are also synced to the disk
(synchronous=FULL), so that they survive a power cut. https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ConfigError, ParseError, SourceUnavailable
from agent.model import Result
from agent.result_json import result_from_dict

SCHEMA_VERSION = 1
BUSY_S = 2.0
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE changes (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, mono_s REAL NOT NULL,
  boot_id TEXT NOT NULL, check_id TEXT NOT NULL, subject TEXT NOT NULL, before TEXT, verdict TEXT NOT NULL,
  raw_verdict TEXT NOT NULL, summary TEXT NOT NULL, evidence TEXT NOT NULL);
CREATE TABLE gates (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, boot_id TEXT NOT NULL,
  engine TEXT NOT NULL, before TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
  evidence TEXT NOT NULL);
CREATE TABLE operator (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, boot_id TEXT NOT NULL,
  command TEXT NOT NULL, reason TEXT NOT NULL, who TEXT NOT NULL);
CREATE TABLE marks (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, boot_id TEXT NOT NULL, mark TEXT NOT NULL,
  summary TEXT NOT NULL);
CREATE TABLE latest (boot_id TEXT NOT NULL, check_id TEXT NOT NULL, subject TEXT NOT NULL,
  result TEXT NOT NULL, PRIMARY KEY (boot_id, check_id, subject)) WITHOUT ROWID;
CREATE INDEX changes_wall ON changes (wall_s);
PRAGMA user_version = 1;
COMMIT;
"""
LOG_TABLES = ("changes", "gates", "operator", "marks")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True, slots=True)
class Row:
    """One statement to be committed; `durable` asks for a sync to the disk."""

    sql: str
    values: tuple[Any, ...]
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept: at most so many rows of each table, and of those older than so many days only the newest.

    Some are kept whatever their age: a clock that was wrong for a moment must not cost the whole history.
    """

    max_rows: int = 200_000
    max_days: float = 90.0
    min_rows: int = 10_000


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken, unlike a full disk, a lock or a missing permission."""
    return isinstance(error, sqlite3.DatabaseError) and (error.sqlite_errorcode or 0) & 0xFF in _DAMAGED


def open_store(path: Path, *, check_pages: bool = True) -> sqlite3.Connection:
    """Open or make the file. Raises ConfigError for a newer schema, sqlite3.Error for everything else."""
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            problem = f"the journal has schema {version}, this nodegate knows up to {SCHEMA_VERSION}"
            raise ConfigError(problem, where=str(path), remedy="upgrade nodegate, or move the file away")
        connection.execute("PRAGMA journal_mode = WAL")
        if version == 0:
            connection.executescript(_SCHEMA)
        elif check_pages and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise _damaged(f"{path} fails its integrity check")
    except BaseException:
        connection.close()
        raise
    return connection


def _damaged(text: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(text)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def move_aside(path: Path) -> Path:
    """Rename a broken file and its companions to NAME.corrupt-TIME; the new name. Raises OSError."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):  # companions exist only while the file is in use
            path.with_name(path.name + suffix).rename(target.with_name(target.name + suffix))
    return target


def write_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> int:
    """Commit all rows or none, but for those SQLite refuses for what is in them. Raises sqlite3.Error.

    Returns how many were refused: a row that can never be written must not keep the others out for ever.
    """
    refused = 0
    rows = list(rows)
    connection.execute(f"PRAGMA synchronous = {'FULL' if any(row.durable for row in rows) else 'NORMAL'}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for row in rows:
            try:
                connection.execute(row.sql, tuple(_storable(value) for value in row.values))
            except (sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError):
                refused += 1
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return refused


def _storable(value: object) -> object:
    """Text from the kernel or an engine may hold bytes that are no UTF-8; SQLite takes none."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def retention_rows(retention: Retention, now_wall_s: float) -> list[Row]:
    """The statements that drop what is too old or too much."""
    oldest_wall_s = now_wall_s - retention.max_days * 86400.0
    rows = []
    for table in LOG_TABLES:  # names of our own, nothing from outside gets into the SQL
        keep = f"SELECT COALESCE(MAX(id), 0) - ? FROM {table}"  # noqa: S608
        sql = f"DELETE FROM {table} WHERE wall_s < ? AND id <= ({keep}) OR id <= ({keep})"  # noqa: S608
        rows.append(Row(sql, (oldest_wall_s, retention.min_rows, retention.max_rows)))
    return rows


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


def read_history(path: Path, since_wall_s: float, limit: int) -> list[dict[str, Any]]:
    """The newest `limit` entries of all kinds since a time, oldest first."""
    entries: list[dict[str, Any]] = []
    with reading(path) as connection:
        for table in LOG_TABLES:
            sql = f"SELECT * FROM {table} WHERE wall_s >= ? ORDER BY id DESC LIMIT ?"  # noqa: S608
            entries += [_entry(table, row) for row in connection.execute(sql, (since_wall_s, limit))]
    entries.sort(key=lambda entry: entry["wall_s"])
    return entries[-limit:] if limit > 0 else []


_KINDS = {"changes": "result", "gates": "gate", "operator": "operator", "marks": "mark"}


def _entry(table: str, row: sqlite3.Row) -> dict[str, Any]:
    entry = {"kind": _KINDS[table], **{key: row[key] for key in row.keys() if key != "id"}}  # noqa: SIM118
    if "check_id" in entry:
        entry["check"] = entry.pop("check_id")
    if "evidence" in entry:
        entry["evidence"] = json.loads(entry["evidence"])
    return entry


def read_latest(path: Path, boot_id: str) -> list[Result]:
    """The newest result of every check and subject on this boot."""
    with reading(path) as connection:
        rows = connection.execute("SELECT result FROM latest WHERE boot_id = ?", (boot_id,)).fetchall()
    results = []
    for row in rows:
        with contextlib.suppress(ParseError, ValueError):  # of an older nodegate: it will be measured anew
            results.append(result_from_dict(json.loads(row["result"])))
    return results
