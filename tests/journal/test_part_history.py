"""History by part: what is a fault, how it survives reboots, whose history it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile, uuid_of
from runner_kit import result

from agent.check_track import ResultChange
from agent.errors import SourceUnavailable
from agent.journal import Journal
from agent.journal_schema import SCHEMA_VERSION
from agent.model import Action, ActionKind, Result, Verdict
from agent.part_history import faults_of
from agent.parts import PartBook, place_of
from agent.sources.fault_history import PartFault

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
WALL_S = 1_700_000_000.0
UUID = uuid_of(3)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "journal.db", wall=lambda: WALL_S)
    yield opened
    opened.close()


def lost(verdict: Verdict = F, *, times: int = 1, **changes: Any) -> Result:
    found = result("gpu.lost", "gpu3", verdict)
    action = Action(ActionKind.REBOOT, "Reboot it.")
    found = replace(found, finding=replace(found.finding, action=action))
    return replace(found, times=times, part=UUID, **changes)


def test_a_fault_is_recorded_when_it_is_confirmed_and_once() -> None:
    well, bad = result("gpu.lost", "gpu3", P), lost()
    (fault,) = faults_of([ResultChange(well, bad)], WALL_S, "boot-a")
    assert (fault.part, fault.place, fault.check, fault.hardware) == (UUID, "gpu3", "gpu.lost", True)
    assert not list(faults_of([ResultChange(bad, bad), ResultChange(bad, well)], WALL_S, "boot-a"))
    gone = lost(U, times=1)
    assert not list(
        faults_of([ResultChange(gone, bad)], WALL_S, "boot-a")
    )  # evidence came back, no new fault
    assert len(list(faults_of([ResultChange(gone, lost(times=2))], WALL_S, "boot-a"))) == 1


def test_another_xid_on_top_of_one_is_another_fault() -> None:
    first = replace(lost(), check="xid")
    second = replace(first, finding=replace(first.finding, summary="Xid 48; Xid 79"))
    assert len(list(faults_of([ResultChange(first, second)], WALL_S, "b"))) == 1
    margin = [replace(each, check="gpu.thermal_margin") for each in (first, second)]
    assert not list(faults_of([ResultChange(*margin)], WALL_S, "b"))


def test_a_setting_is_no_fault_of_the_hardware() -> None:
    (fault,) = faults_of([ResultChange(None, result("gpu.power_limit", "gpu3", F))], WALL_S, "b")
    assert not fault.hardware


def test_faults_survive_the_agent_and_the_boot(tmp_path: Path, journal: Journal) -> None:
    fault = PartFault(UUID, "gpu3", "gpu.lost", WALL_S, "boot-a", "lost", hardware=True)
    older = replace(fault, wall_s=WALL_S - 90_000, boot_id="boot-0")
    for each in (fault, older):
        journal.record_fault(each)
    assert journal.flush()
    journal.close()
    again = Journal.open(tmp_path / "journal.db", wall=lambda: WALL_S)
    try:
        assert again.faults(0.0) == [older, fault]
        assert again.faults(WALL_S - 10) == [fault]
    finally:
        again.close()


def test_a_journal_that_is_gone_gives_no_history(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    journal.close()
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(SourceUnavailable):
        journal.faults(0.0)


@pytest.mark.parametrize(
    ("part", "subjects"),
    [
        ("gpu3", ["gpu3"]),
        (UUID, ["gpu3"]),
        ("GPU-0000000", ["gpu3", "gpu4"]),
        ("gpu5", []),
        ("%", []),
    ],
)
def test_history_of_one_part(journal: Journal, part: str, subjects: list[str]) -> None:
    other = replace(lost(), finding=replace(lost().finding, subject="gpu4"), part=uuid_of(4))
    changes = [ResultChange(None, each) for each in (lost(), other, result("xid", "node", P))]
    journal.record_changes(changes, "boot-a", lambda found: {"times": found.times})
    journal.record_gate("glm", "serving", "failed", "why")
    assert journal.flush()
    entries = journal.history(0.0, part=part)
    assert [entry["subject"] for entry in entries] == subjects
    assert all(
        entry["kind"] == "result" and entry["evidence"]["explained"] == {"times": 1} for entry in entries
    )


def test_a_traceback_is_an_entry_of_its_own(journal: Journal) -> None:
    journal.record_trace("gpu.lost", "ValueError: odd", "Traceback ...", boot_id="boot-a")
    assert journal.flush()
    (entry,) = journal.history(0.0)
    assert (entry["kind"], entry["check"], entry["trace"]) == ("trace", "gpu.lost", "Traceback ...")


def test_a_crash_keeps_the_engines_last_lines(journal: Journal) -> None:
    journal.record_crash("glm", "process 7 ended", ["loading", "CUDA out of memory"], boot_id="boot-a")
    assert journal.flush()
    (entry,) = journal.history(0.0)
    assert (entry["check"], entry["summary"]) == ("engine:glm", "process 7 ended")
    assert entry["trace"] == "loading\nCUDA out of memory"


def test_a_journal_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal.open(path).close()
    connection = sqlite3.connect(path)
    for table in ("faults", "traces", "memory"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("ALTER TABLE changes DROP COLUMN part")
    connection.execute(
        "INSERT INTO marks (wall_s, boot_id, mark, summary) VALUES (?, 'b', 'start', 'old')", (WALL_S,)
    )
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    journal = Journal.open(path, wall=lambda: WALL_S)
    try:
        journal.record_fault(PartFault(UUID, "gpu3", "xid", WALL_S, "b", "Xid 79"))
        assert journal.flush()
        assert [entry["summary"] for entry in journal.history(0.0)] == ["old"]
        assert len(journal.faults(0.0)) == 1
    finally:
        journal.close()
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_parts_are_known_by_slot_and_port_also_after_they_are_lost() -> None:
    node, book = h200_node(), PartBook()
    book.refresh(node.sources, h200_profile({"gpus": {"pins": None}}))
    assert book.part_of("gpu3") == book.part_of("gpu3/link5") == UUID
    assert book.part_of("mlx5_3/1")
    assert book.part_of("mlx5_3/1") != book.part_of("mlx5_4/1")
    assert book.part_of("node") == book.part_of("engine:glm") == ""
    node.data["nvml"] = {"error": "TIMEOUT"}
    book.refresh(node.sources, h200_profile({"gpus": {"pins": None}}))
    assert book.part_of("gpu3") == UUID
    assert (place_of("gpu3/link5"), place_of("mlx5_3/1"), place_of("node")) == ("gpu3", "mlx5_3/1", "node")
