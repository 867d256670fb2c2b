"""The journal after SIGKILL at random moments: it opens, is whole, and has all that it acknowledged."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import journal_victim
import pytest

from agent.journal import Journal

KILLS = 10


def run_and_kill(path: Path, first: int, after_s: float) -> int:
    """Kill the victim a while after its first acknowledgement; the last number that it acknowledged."""
    argv = [sys.executable, journal_victim.__file__, str(path), str(first)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        lines = [victim.stdout.readline()]
        time.sleep(after_s)  # the moment of the kill, not a wait for something
        victim.send_signal(signal.SIGKILL)
        lines += victim.stdout.read().splitlines(keepends=True)
    assert victim.returncode == -signal.SIGKILL
    return max(int(line) for line in lines if line.endswith("\n"))


@pytest.mark.timeout(300)
def test_killed_at_ten_random_moments(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    rng = random.Random(20)
    acknowledged: set[int] = set()
    first = 0
    for _ in range(KILLS):
        last = run_and_kill(path, first, rng.uniform(0.0, 0.15))
        acknowledged |= set(range(first, last + 1))
        first = last + 1000
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            for column, table in (("summary", "marks"), ("reason", "operator")):
                stored = {int(row[0]) for row in connection.execute(f"SELECT {column} FROM {table}")}
                assert acknowledged <= stored
        connection.close()
    journal = Journal.open(path)
    assert journal.healthy
    assert journal.reason == ""
    journal.close()
    assert list(tmp_path.glob("*.corrupt-*")) == []


@pytest.mark.timeout(120)
def test_killed_while_the_file_is_being_made(tmp_path: Path) -> None:
    rng = random.Random(5)
    for number in range(6):
        path = tmp_path / f"j{number}" / "journal.db"
        path.parent.mkdir()
        argv = [sys.executable, journal_victim.__file__, str(path), "0"]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as victim:
            deadline_s = time.monotonic() + 60
            while not path.exists():
                assert time.monotonic() < deadline_s
            time.sleep(rng.uniform(0.0, 0.01))
            victim.send_signal(signal.SIGKILL)
        journal = Journal.open(path)
        journal.record_mark("start", "again")
        assert journal.flush(30)
        journal.close()
        assert list(path.parent.glob("*.corrupt-*")) == []
