"""A machine whose clock is wrong for a moment (no battery, no NTP yet) keeps its history."""

from __future__ import annotations

from pathlib import Path

from agent.journal import Journal


def test_a_clock_in_the_far_future_costs_no_history(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for wall_s, mark in ((1.7e9, "before"), (4.0e9, "wrong clock"), (1.7e9 + 60, "after")):
        journal = Journal.open(path, wall=lambda now_s=wall_s: now_s)  # type: ignore[misc]
        journal.record_mark("start", mark)
        assert journal.flush()
        journal.close()
    journal = Journal.open(path)
    assert {entry["summary"] for entry in journal.history(0.0)} >= {"before", "after"}
    journal.close()
