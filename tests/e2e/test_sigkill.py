"""SIGKILL of the daemon at random moments: nothing that must be kept is lost, nothing stale is ever ready."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_rig import DaemonRig, wait_until

from agent.journal_read import read_history

#: tests/root/test_hundred_kills.py does it a hundred times.
KILLS = 10
LONGEST_LIFE_S = 2.5
#: What a result may be older than the agent's life by: it is read before it is shown.
SLACK_S = 0.5


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[DaemonRig]:
    """A node whose engine is adopted from one life of the daemon to the next."""
    whole = DaemonRig(tmp_path, {"main": list(range(8))})
    yield whole
    whole.close()


def _journal_is_sound(rig: DaemonRig) -> None:
    """The file opens, its pages are whole, and its history can be read."""
    path = rig.state_dir / "journal.db"
    if not path.exists():  # killed before it was made
        return
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        connection.close()
    if connection_has_schema(path):
        read_history(path, 0.0, 100_000)
    assert not list(rig.state_dir.glob("*.corrupt-*"))


def connection_has_schema(path: Path) -> bool:
    """Whether the journal had been set up when the daemon was killed."""
    connection = sqlite3.connect(path)
    try:
        return bool(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def _live(rig: DaemonRig, life_s: float, *, held: bool) -> None:
    """One life, killed after `life_s`; while a hold is `held` its gate must never be open."""
    began_s = time.monotonic()
    rig.start()
    assert rig.process is not None
    while time.monotonic() < began_s + life_s:
        assert rig.process.poll() is None, rig.log()[-3000:]
        if rig.ready("main"):
            assert not held, f"open in maintenance\n{rig.log()[-3000:]}"
            _evidence_is_fresh(rig, began_s)
        time.sleep(0.005)
    rig.process.kill()
    rig.process.wait(30)
    _journal_is_sound(rig)


def _evidence_is_fresh(rig: DaemonRig, began_s: float) -> None:
    """Every result was read in this life, or is carried over and says so, with its age."""
    status = rig.json("/status")
    age_s = time.monotonic() - began_s
    assert status["results"]
    stale = [
        (result["check"], result["subject"], result["age_s"], age_s)
        for result in status["results"]
        if not result["carried"] and result["age_s"] > age_s + SLACK_S
    ]
    assert stale == []
    fast = [
        r for r in status["results"] if r["check"] in ("gpu.lost", "gpu.throttle", "xid", "engine.health")
    ]
    assert fast
    assert [r["check"] for r in fast if r["carried"]] == []


@pytest.mark.timeout(400)
def test_ten_kills(rig: DaemonRig) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # shown when the test fails
    chance = random.Random(seed)
    for _ in range(KILLS // 2):
        _live(rig, chance.uniform(0.0, LONGEST_LIFE_S), held=False)
    rig.start()
    rig.wait_ready("main")
    engine = rig.engine_pids()
    assert rig.process is not None
    rig.process.kill()
    rig.process.wait(30)

    rig.start()
    rig.wait_ready("main")
    assert rig.engine_pids() == engine  # adopted, not started again
    rig.admin.post("/maintenance/enter", {"reason": "killed at once"})
    rig.process.kill()  # the word was accepted, so it holds
    rig.process.wait(30)
    for _ in range(KILLS - KILLS // 2):
        _live(rig, chance.uniform(0.0, LONGEST_LIFE_S), held=True)

    rig.start()
    gate = rig.wait_state("main", "maintenance")
    assert "killed at once" in gate["reason"]
    wait_until("a stopped engine", lambda: not rig.engine_pids())
    rig.admin.post("/maintenance/exit", {"reason": "test is over"})
    rig.wait_ready("main")
    entries = rig.admin.get("/history", since_s=3600)["entries"]
    assert {"result", "gate", "operator", "mark"} <= {entry["kind"] for entry in entries}
