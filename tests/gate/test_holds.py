"""The holds file: written whole, read strictly, and a maintenance hold when it cannot be understood."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agent.holds import (
    EngineHolds,
    ForceOpen,
    Hold,
    Holds,
    HoldsError,
    HoldStore,
    LogCleared,
    Waiver,
    apply_waivers,
)
from agent.model import Finding, Result, ServingClass, Snapshot, Verdict

HOLD = Hold("work on the loop", "uid 1000", 1000.0, "boot-a")
FORCE = ForceOpen("the fleet is down", "uid 0", 1000.0, "boot-a", 2800.0, 1900.0)
WAIVER = Waiver("gpu.ecc", "gpu3", "RMA is on its way", "uid 0", 1000.0, 5000.0)
FULL = Holds(
    maintenance=HOLD,
    engines={"glm": EngineHolds(quarantine=HOLD, drain=HOLD, force_open=FORCE)},
    waivers=(WAIVER,),
    log_cleared=LogCleared("boot-a", 77.5),
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    store = HoldStore(tmp_path)
    assert store.load("boot-a") == Holds()
    store.save(FULL)
    assert store.load("boot-a") == FULL
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["holds.json"]


def test_only_maintenance_and_waivers_outlive_a_reboot(tmp_path: Path) -> None:
    store = HoldStore(tmp_path)
    store.save(FULL)
    assert store.load("boot-b") == replace(FULL, engines={"glm": EngineHolds()}, log_cleared=None)


GARBLED = [
    b"",
    b"{",
    b"\x00\xff\xfe",
    b"[]",
    b"null",
    b'{"schema_version": 2}',
    b'{"maintenance": "yes"}',
    b'{"maintenanc": null}',
    b'{"engines": {"glm": {"quarantine": {"reason": "x"}}}}',
    b'{"waivers": [{"check": "a"}]}',
    b"[" * 100_000,
    b" " * (1 << 20) + b"{}",
]


@pytest.mark.parametrize("raw", GARBLED, ids=range(len(GARBLED)))
def test_a_garbled_file_is_a_maintenance_hold(tmp_path: Path, raw: bytes) -> None:
    store = HoldStore(tmp_path)
    store.path.write_bytes(raw)
    held = store.load("boot-a").maintenance
    assert held is not None
    assert str(store.path) in held.reason
    assert "maintenance exit" in held.reason
    assert "\n" not in held.reason


def test_every_cut_of_the_file_is_a_maintenance_hold(tmp_path: Path) -> None:
    store = HoldStore(tmp_path)
    store.save(Holds(engines={"glm": EngineHolds(quarantine=HOLD)}))
    raw = store.path.read_bytes().rstrip()
    for length in range(len(raw)):
        store.path.write_bytes(raw[:length])
        assert store.load("boot-a").maintenance is not None, f"cut after {length} bytes"


def test_a_folder_in_its_place_is_a_maintenance_hold_and_cannot_be_overwritten(tmp_path: Path) -> None:
    store = HoldStore(tmp_path)
    store.path.mkdir()
    assert store.load("boot-a").maintenance is not None
    with pytest.raises(HoldsError, match=r"holds\.json cannot be written"):
        store.save(Holds())


def test_a_draft_left_by_a_kill_is_ignored(tmp_path: Path) -> None:
    store = HoldStore(tmp_path)
    store.save(FULL)
    (tmp_path / ".holds.json.new").write_bytes(b"{ half")
    assert store.load("boot-a") == FULL
    store.save(Holds())
    assert store.load("boot-a") == Holds()


def test_the_draft_is_durable_before_it_replaces_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        order.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file")
        real_fsync(descriptor)

    def rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", rename)
    HoldStore(tmp_path).save(FULL)
    assert order == ["file", "rename", "folder"]


def test_the_file_is_readable_by_people(tmp_path: Path) -> None:
    store = HoldStore(tmp_path)
    store.save(FULL)
    assert json.loads(store.path.read_text())["maintenance"]["reason"] == "work on the loop"


def snapshot() -> Snapshot:
    results = {
        (check, "gpu3"): Result(
            check,
            Finding("gpu3", Verdict.FAIL, "x"),
            Verdict.FAIL,
            Verdict.FAIL,
            ServingClass.HARD,
            1.0,
            1.0,
            30.0,
        )
        for check in ("gpu.ecc", "gpu.lost")
    }
    return Snapshot("n", "h", True, "boot-a", 1.0, 1000.0, results)


def test_a_waiver_covers_its_check_and_subject_between_its_times() -> None:
    waivers = [WAIVER, replace(WAIVER, check="gpu.lost"), replace(WAIVER, check="gone")]
    unwaivable = frozenset({"gpu.lost"})
    before = snapshot()
    after = apply_waivers(before, waivers, unwaivable, 1500.0)
    assert {key[0]: result.waived for key, result in after.results.items()} == {
        "gpu.ecc": True,
        "gpu.lost": False,
    }
    assert apply_waivers(after, waivers, unwaivable, 5000.0).results == before.results
    assert apply_waivers(before, waivers, unwaivable, 999.0) is before, "a clock set back ends it"


def test_a_new_waiver_replaces_and_ended_ones_are_dropped() -> None:
    held = Holds(waivers=(WAIVER,))
    longer = replace(WAIVER, until_wall_s=9000.0)
    assert held.with_waiver(longer, 1500.0).waivers == (longer,)
    other = replace(WAIVER, subject="gpu4", until_wall_s=7000.0)
    assert held.with_waiver(other, 6000.0).waivers == (other,)
    assert held.with_waiver(replace(WAIVER, until_wall_s=1500.0), 1500.0).waivers == (), "an end now ends it"
