"""The journal's SQLite file as its writer thread uses it: opened, mended, written and pruned.

WAL keeps every committed row through a SIGKILL; rows of an operator or a gate are also synced to the disk
(synchronous=FULL), so that they survive a power cut. https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ConfigError
from agent.journal_schema import SCHEMA_VERSION, upgrade

BUSY_S = 2.0
LOG_TABLES = ("changes", "gates", "operator", "marks", "faults", "traces")
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
        if version < SCHEMA_VERSION:
            upgrade(connection, version)
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
