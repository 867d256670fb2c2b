"""The journal: what is written can be read, and nothing that happens to its file reaches a caller."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import journal_full_disk
import pytest
from runner_kit import BOOT, result, snapshot, wait_until

from agent.check_track import ResultChange
from agent.errors import ConfigError, ParseError, SourceUnavailable
from agent.journal import Journal, Retention
from agent.model import Action, ActionKind, Finding, Result, ServingClass, Verdict
from agent.result_json import result_from_dict, result_to_dict
from agent.track_memory import SubjectMemory, memory_from_dict

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal.open(path, retry_s=0.02)
    yield opened
    opened.close()


def change(verdict: Verdict = F, before: Result | None = None, subject: str = "gpu3") -> ResultChange:
    return ResultChange(before, result("gpu.thermal_margin", subject, verdict))


def texts(journal: Journal) -> list[str]:
    return [entry["summary"] for entry in journal.history(0.0) if entry["kind"] == "mark"]


def test_every_kind_of_entry_comes_back_with_its_evidence_in_order(journal: Journal) -> None:
    journal.record_mark("start", "version 1", boot_id=BOOT)
    journal.record_changes([change(F, result("gpu.thermal_margin", "gpu3", P))], BOOT)
    journal.record_gate("glm", "serving", "failed", "gpu3 overheats", {"blocking": ["gpu3"]})
    journal.record_operator("drain glm", "work on the loop", "uid 0")
    assert journal.flush()
    mark, res, gate, operator = journal.history(0.0)
    assert (mark["kind"], mark["mark"], mark["summary"]) == ("mark", "start", "version 1")
    assert (res["kind"], res["check"], res["subject"]) == ("result", "gpu.thermal_margin", "gpu3")
    assert (res["before"], res["verdict"], res["raw_verdict"]) == ("PASS", "FAIL", "FAIL")
    assert res["evidence"]["finding"]["summary"] == "gpu3 reads FAIL"
    assert (gate["kind"], gate["engine"], gate["before"], gate["state"]) == (
        "gate",
        "glm",
        "serving",
        "failed",
    )
    assert gate["evidence"] == {"blocking": ["gpu3"]}
    assert (operator["command"], operator["reason"], operator["who"]) == (
        "drain glm",
        "work on the loop",
        "uid 0",
    )
    assert {entry["boot_id"] for entry in (mark, res, gate, operator)} == {BOOT}
    json.dumps(journal.history(0.0))


def test_history_by_time_and_limit(path: Path) -> None:
    now = [100.0]
    journal = Journal.open(path, wall=lambda: now[0])
    for number in range(10):
        now[0] = 100.0 + number
        journal.record_mark("n", str(number))
    assert journal.flush()
    assert [e["summary"] for e in journal.history(107.0)] == ["7", "8", "9"]
    assert [e["summary"] for e in journal.history(0.0, limit=2)] == ["8", "9"]
    assert journal.history(0.0, limit=0) == []
    journal.close()


def test_an_event_is_on_record_within_200_ms(journal: Journal) -> None:
    took_s = []
    for _ in range(5):
        sent_s = time.monotonic()
        journal.record_changes([change()], BOOT)
        seen = len(took_s) + 1
        wait_until(lambda n=seen: len(journal.history(0.0)) == n, "the change is in the file")  # type: ignore[misc]
        took_s.append(time.monotonic() - sent_s)
    assert min(took_s) < 0.2


def test_results_of_this_boot_can_be_carried_over(journal: Journal, path: Path) -> None:
    journal.record_changes([change(P), change(F), change(P, subject="gpu4")], BOOT)
    journal.record_changes([change(P, subject="gpu5")], "boot-z")
    assert journal.flush()
    assert sorted((r.subject, r.verdict) for r in journal.last_results(BOOT)) == [("gpu3", F), ("gpu4", P)]
    fresh = replace(result("gpu.thermal_margin", "gpu4", P), measured_mono_s=2000.0)
    journal.record_latest(snapshot(fresh))
    assert journal.flush()
    by_subject = {r.subject: r for r in journal.last_results(BOOT)}
    assert by_subject["gpu4"] == fresh  # evidence that was renewed without a change
    assert journal.last_results("boot-z") == []  # another boot's evidence says nothing of this one


def test_a_subject_that_left_the_snapshot_is_not_carried(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.journal.LATEST_EVERY_S", 0.0)
    journal.record_latest(snapshot(result("c", "gpu0", P), result("c", "gpu1", P)))
    journal.record_latest(snapshot(result("c", "gpu0", P)))
    assert journal.flush()
    assert [r.subject for r in journal.last_results(BOOT)] == ["gpu0"]


def test_of_a_fleeting_check_only_what_stands_against_the_node_is_noted_anew(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.journal.LATEST_EVERY_S", 0.0)
    first = [result("fast", "gpu0", P), result("fast", "gpu1", F), result("slow", "gpu0", P)]
    later = [replace(each, measured_mono_s=each.measured_mono_s + 1000.0) for each in first]
    for results in (first, later):
        journal.record_latest(snapshot(*results), fleeting=frozenset({"fast"}))
    assert journal.flush()
    noted = {(r.check, r.subject): r for r in journal.last_results(BOOT)}
    assert noted == {
        ("fast", "gpu0"): first[0],
        ("fast", "gpu1"): later[1],
        ("slow", "gpu0"): later[2],
    }


def test_latest_is_not_written_at_every_run(journal: Journal) -> None:
    journal.record_latest(snapshot(result("c", "gpu0", P)))
    journal.record_latest(snapshot(result("c", "gpu0", F)))
    assert journal.flush()
    assert [r.verdict for r in journal.last_results(BOOT)] == [P]


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    "garbled",
    ["[" * 100_000, "7", '"x"', "", "\x00", 7, b"\xff", "NaN", "{}", '{"memory": [1]}']
    + [
        json.dumps(result_to_dict(result("a.b", "gpu3", F)) | {key: 0.25}).replace("0.25", value)
        for key in ("measured_mono_s", "first_seen_s", "valid_for_s", "times")
        for value in (HUGE, "NaN", "Infinity", "[]", "true")
        if key != "times" or value not in (HUGE, "true")
    ],
    ids=lambda text: str(text)[-24:],
)
def test_a_garbled_row_costs_that_row_alone(journal: Journal, path: Path, garbled: object) -> None:
    change_ = change(subject="gpu1")
    journal.record_changes([change_, change(subject="gpu2")], BOOT)
    journal.record_state("counters", {}, BOOT)
    assert journal.flush()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE latest SET result = ? WHERE subject = 'gpu2'", (garbled,))
        connection.execute("UPDATE memory SET value = ?", (garbled,))
        connection.execute("UPDATE changes SET evidence = ? WHERE subject = 'gpu2'", (garbled,))
    connection.close()
    assert change_.after in journal.last_results(BOOT)
    assert {each.subject for each in journal.last_results(BOOT)} == {"gpu1"}
    assert journal.last_memories(BOOT, 1e9) == {}
    journal.last_state("counters", BOOT)
    assert [entry["subject"] for entry in journal.history(0.0)] == ["gpu1", "gpu2"]


@pytest.mark.parametrize("key", ["fail_since_mono_s", "unknown_since_mono_s", "run_since_mono_s"])
@pytest.mark.parametrize("value", [10**400, float("nan"), 2e9, "1", True, [10**400]])
def test_a_memory_with_an_impossible_time_is_no_memory(key: str, value: object) -> None:
    stored = SubjectMemory("h").to_dict() | {key: value}
    with pytest.raises(ParseError):
        memory_from_dict(stored, 1e9)


def test_a_result_survives_the_way_through_json() -> None:
    whole = Result(
        "c",
        Finding("gpu0", F, "s", 1.5, ">= 2", "C", Action(ActionKind.REBOOT, "R.", "p"), ServingClass.INFO),
        F, U, ServingClass.SOFT, 1.0, 2.0, 3.0, carried=True, waived=True,
    )  # fmt: skip
    assert result_from_dict(json.loads(json.dumps(result_to_dict(whole)))) == whole
    for broken in (
        {},
        {**result_to_dict(whole), "verdict": "GREAT"},
        {**result_to_dict(whole), "finding": None},
    ):
        with pytest.raises(ParseError):
            result_from_dict(broken)


def test_a_journal_of_a_newer_nodegate_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"schema 99.*upgrade nodegate"):
        Journal.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["garbage", "torn", "middle"])
def test_a_broken_file_is_moved_aside_and_a_new_one_begun(path: Path, damage: str) -> None:
    first = Journal.open(path)
    for number in range(500):
        first.record_mark("n", f"{number} " + "x" * 200)
    assert first.flush()
    first.close()
    whole = path.read_bytes()
    broken = {
        "garbage": b"not a database at all " * 300,
        "torn": whole[: len(whole) // 2],
        "middle": whole[:8192] + os.urandom(8192) + whole[16384:],
    }[damage]
    path.write_bytes(broken)
    journal = Journal.open(path)
    assert journal.healthy
    (moved,) = path.parent.glob("journal.db.corrupt-*")
    assert moved.read_bytes() == broken
    assert str(moved) in journal.reason
    journal.record_mark("n", "again")
    assert journal.flush()
    assert texts(journal) == ["again"]
    journal.close()


def test_a_file_that_is_removed_while_in_use_is_made_again(journal: Journal, path: Path) -> None:
    journal.record_mark("n", "one")
    assert journal.flush()
    for each in path.parent.iterdir():
        each.unlink()
    journal.record_mark("n", "two")
    assert journal.flush()
    assert texts(journal) == ["two"]


def test_a_file_that_cannot_be_opened_is_a_warning_and_is_tried_again(tmp_path: Path) -> None:
    obstacle = tmp_path / "state"
    obstacle.write_text("a file where a folder should be")
    journal = Journal.open(obstacle / "journal.db", retry_s=0.02)
    assert not journal.healthy
    assert "cannot write the journal" in journal.reason
    journal.record_mark("n", "kept")
    assert not journal.flush(0.1)
    with pytest.raises(SourceUnavailable):
        journal.history(0.0)
    obstacle.unlink()
    wait_until(lambda: journal.healthy, "the journal works again")
    assert journal.flush()
    assert texts(journal) == ["kept"]
    assert journal.reason == ""
    journal.close()


def test_a_lock_by_somebody_else_delays_and_loses_nothing(journal: Journal, path: Path) -> None:
    journal.record_mark("n", "zero")
    assert journal.flush()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    journal.record_mark("n", "one")
    wait_until(lambda: not journal.healthy, "the lock is noticed")
    assert "locked" in journal.reason
    other.execute("ROLLBACK")
    other.close()
    wait_until(lambda: journal.healthy, "the journal works again")
    assert journal.flush()
    assert texts(journal) == ["zero", "one"]


def test_a_full_disk_is_a_warning_and_nothing_is_lost_when_there_is_room_again(tmp_path: Path) -> None:
    """A real failing write: the kernel refuses to let this child's files grow, then lets them."""
    child = subprocess.run(
        [sys.executable, journal_full_disk.__file__, str(tmp_path / "journal.db")],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout) == {"flushed": False, "healthy_while_full": False, "kept": 60, "ok": True}


def test_what_the_queue_cannot_hold_is_dropped_without_waiting_and_noted(tmp_path: Path) -> None:
    obstacle = tmp_path / "state"
    obstacle.write_text("")
    journal = Journal.open(obstacle / "journal.db", retry_s=0.02, queue_rows=10)
    began_s = time.monotonic()
    for number in range(1000):
        journal.record_mark("n", str(number))
    assert time.monotonic() - began_s < 5
    obstacle.unlink()
    wait_until(lambda: journal.healthy, "the journal works again")
    wait_until(lambda: journal.flush(10), "nothing more is dropped")
    lost = [e for e in journal.history(0.0) if e["kind"] == "mark" and e["mark"] == "journal"]
    kept = [text for text in texts(journal) if text.isdecimal()]
    assert sum(int(e["summary"].split()[0]) for e in lost) == 1000 - len(kept)
    assert kept[:10] == [str(number) for number in range(10)]
    journal.close()


def test_odd_text_and_values_do_not_stop_the_writer(journal: Journal) -> None:
    journal.record_mark("n", "lone \udcff surrogate \x00 zero")
    journal.record_mark("n", None)  # type: ignore[arg-type]
    journal.record_gate("glm", "a", "b", "r", {("tuple", "key"): object()})
    journal.record_gate("glm", "a", "b", "r", object())
    journal.record_mark("n", "after")
    assert not journal.flush()  # the entry without a text is lost, and that is said
    assert journal.flush()
    assert journal.healthy
    assert texts(journal)[:2] == ["lone ? surrogate \x00 zero", "after"]
    assert any("1 entries were lost" in text for text in texts(journal))


def test_old_and_surplus_entries_are_dropped(path: Path) -> None:
    now = [0.0]
    journal = Journal.open(path, wall=lambda: now[0])
    for number in range(20):
        now[0] = number * 86400.0
        journal.record_mark("n", str(number))
        assert journal.flush()
    journal.close()
    journal = Journal.open(path, wall=lambda: now[0], retention=Retention(max_rows=3, max_days=90))
    wait_until(lambda: len(texts(journal)) == 3, "surplus is dropped")
    assert texts(journal) == ["17", "18", "19"]
    journal.close()
    now[0] += 89.5 * 86400
    journal = Journal.open(path, wall=lambda: now[0], retention=Retention(100, 90, min_rows=0))
    wait_until(lambda: texts(journal) == ["19"], "old ones are dropped")
    journal.close()


def test_closing_writes_what_is_left_and_ends_the_thread(path: Path) -> None:
    before = threading.active_count()
    journal = Journal.open(path)
    for number in range(300):
        journal.record_mark("n", str(number))
    journal.close()
    journal.close()
    assert threading.active_count() == before
    assert len(texts(journal)) == 300


def test_closing_does_not_wait_for_a_disk_that_is_gone(tmp_path: Path) -> None:
    obstacle = tmp_path / "state"
    obstacle.write_text("")
    journal = Journal.open(obstacle / "journal.db", queue_rows=3)
    for number in range(100):
        journal.record_mark("n", str(number))
    began_s = time.monotonic()
    journal.close(1.0)
    assert time.monotonic() - began_s < 20
