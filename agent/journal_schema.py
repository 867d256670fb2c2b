"""The schema of the journal's SQLite file and how an older one is brought up to it.

`latest` and `memory` are for an agent that restarts on the same boot; all other tables are the record.
"""

from __future__ import annotations

import sqlite3

SCHEMA_VERSION = 2

_STEPS = (
    """
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
""",
    """
BEGIN IMMEDIATE;
ALTER TABLE changes ADD COLUMN part TEXT NOT NULL DEFAULT '';
CREATE TABLE faults (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, boot_id TEXT NOT NULL,
  part TEXT NOT NULL, place TEXT NOT NULL, check_id TEXT NOT NULL, hardware INTEGER NOT NULL,
  summary TEXT NOT NULL);
CREATE INDEX faults_wall ON faults (wall_s);
CREATE TABLE traces (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, boot_id TEXT NOT NULL,
  check_id TEXT NOT NULL, summary TEXT NOT NULL, trace TEXT NOT NULL);
CREATE TABLE memory (boot_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (boot_id, name)) WITHOUT ROWID;
PRAGMA user_version = 2;
COMMIT;
""",
)


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Bring a file from schema `version` (0: empty) up to this one, step by step. Raises sqlite3.Error."""
    for step in _STEPS[version:]:
        connection.executescript(step)
