"""What is published beside the results: ten minutes of curves, and the newest changes of the journal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from runner_kit import result, wait_until
from server_kit import published, record

from agent.check_track import ResultChange
from agent.journal import Journal
from agent.model import GateState, Measure, Snapshot, Verdict
from agent.recent_changes import SHOWN, RecentChanges, read_changes
from agent.recent_history import (
    LENGTH_S,
    PERIOD_S,
    SAMPLES,
    TOKENS,
    HistoryRecorder,
    TokenCount,
    history_json,
    history_view,
)

P, F = Verdict.PASS, Verdict.FAIL
HEAT = "gpu_temperature_celsius"


def _snapshot(heat_c: float, now_s: float, read_s: float | None = None) -> Snapshot:
    """One GPU's temperature as a check measured it, and what no curve is kept of."""
    measures = (Measure(HEAT, float("nan")), Measure(HEAT, heat_c), Measure("gpu_pcie_replays_total", 1.0))
    hot = replace(
        result("gpu.thermal_margin", "gpu3", P),
        measures=measures,
        measured_mono_s=now_s if read_s is None else read_s,
        valid_for_s=10.0,
    )
    return Snapshot("n", "h", True, "b", now_s, now_s, {("gpu.thermal_margin", "gpu3"): hot})


def test_a_sample_is_taken_every_period_and_ten_minutes_are_kept() -> None:
    recorder, now_s = HistoryRecorder(), 1000.0
    for at in range(SAMPLES + 50):
        assert recorder.due(now_s)
        recorder.take(now_s, 5000.0 + now_s, _snapshot(40.0 + at, now_s), {})
        assert not recorder.due(now_s + PERIOD_S - 0.1)
        now_s += PERIOD_S
    history = recorder.history
    assert len(history.samples) == SAMPLES
    assert history.times_s()[0] >= -LENGTH_S
    assert history.series() == {(HEAT, "gpu3"): [40.0 + at for at in range(50, SAMPLES + 50)]}


def test_what_is_too_old_to_count_is_no_point_of_a_curve_and_what_was_published_never_changes() -> None:
    recorder = HistoryRecorder()
    recorder.take(1000.0, 1.0, _snapshot(40.0, 1000.0), {})
    before = recorder.history
    recorder.take(1005.0, 6.0, _snapshot(41.0, 1005.0, read_s=900.0), {})
    recorder.take(1010.0, 11.0, None, {})
    assert recorder.history.series() == {(HEAT, "gpu3"): [40.0, None, None]}
    assert before.series() == {(HEAT, "gpu3"): [40.0]}


def test_tokens_are_a_rate_and_an_engine_that_begins_again_is_no_negative_one() -> None:
    recorder = HistoryRecorder()
    told = [
        (100.0, 999.5),
        (600.0, 1004.5),
        (600.0, 1004.5),
        (1100.0, 1014.0),
        (50.0, 1019.0),
        None,
        (60.0, 1029.0),
    ]
    for at, count in enumerate(told):
        tokens = {} if count is None else {"glm": TokenCount(*count)}
        recorder.take(1000.0 + 5 * at, 0.0, None, tokens)
    rates = recorder.history.series()[TOKENS, "engine:glm"]
    assert rates == [None, 500 / 4.5, 0.0, 500 / 4.0, None, None, None]


def test_history_is_json_with_null_where_nothing_was_known() -> None:
    recorder = HistoryRecorder()
    recorder.take(1000.0, 50.0, _snapshot(40.123, 1000.0), {})
    recorder.take(1005.0, 55.0, None, {})
    view = history_view(recorder.history, "n1", True)
    assert view["times_wall_s"] == [50.0, 55.0]
    assert view["series"] == [{"metric": HEAT, "subject": "gpu3", "unit": "C", "values": [40.12, None]}]
    base = published(record(GateState.SERVING), at_s=0.0, simulated=True)
    answer = json.loads(history_json(replace(base, history=recorder.history)))
    assert (answer["node"], answer["simulated"], answer["series"]) == ("bench", True, view["series"])
    assert json.loads(history_json(None))["series"] == []


def test_the_newest_changes_leave_out_good_beginnings_and_join_what_is_the_same(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    try:
        first = [ResultChange(None, result("gpu.ecc", f"gpu{at}", P)) for at in range(8)]
        journal.record_changes(first, "b")
        bad = [
            ResultChange(
                each.after,
                replace(each.after, verdict=F, finding=replace(each.after.finding, summary="2 errors")),
            )
            for each in reversed(first)
        ]
        journal.record_changes(bad, "b")
        journal.record_gate("glm", "serving", "failed", "gpu.ecc gpu0: 2 errors")
        journal.record_operator("drain glm", "x" * 1000, "uid 0")
        assert journal.flush()
        operator, gate, result_row = read_changes(journal).rows
    finally:
        journal.close()
    assert (result_row.who, result_row.before, result_row.after) == ("gpu0-gpu7", "PASS", "FAIL")
    assert (gate.who, gate.before, gate.after) == ("glm", "serving", "failed")
    assert (operator.after, len(operator.why)) == ("drain glm", 201)


def test_changes_are_bounded_and_a_journal_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    try:
        for at in range(SHOWN + 30):
            journal.record_mark("start", f"mark {at}")
        assert journal.flush()
        assert [change.why for change in read_changes(journal).rows][:2] == [
            f"mark {SHOWN + 29}",
            f"mark {SHOWN + 28}",
        ]
        assert len(read_changes(journal).rows) == SHOWN
        journal.path = tmp_path / "nothing.db"
        assert "cannot read the journal" in read_changes(journal).problem
    finally:
        journal.close()


def test_the_reader_follows_the_journal_by_itself(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    recent = RecentChanges(journal)
    recent.start()
    try:
        journal.record_mark("start", "one")
        wait_until(lambda: len(recent.changes.rows) == 1, "the first mark")
    finally:
        recent.stop()
        journal.close()


def test_a_journal_garbled_in_a_new_way_is_told_and_the_reader_goes_on(tmp_path: Path) -> None:
    class Garbled(Journal):
        def recent(self, limit: int) -> list[dict[str, object]]:
            raise TypeError("bad operand")

    recent = RecentChanges(Garbled.open(tmp_path / "journal.db"))
    recent.start()
    try:
        wait_until(lambda: recent.changes.problem == "TypeError: bad operand", "the problem")
        assert recent._thread.is_alive()
    finally:
        recent.stop()
        recent._journal.close()
