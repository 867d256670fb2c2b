"""A run and the holds of its node: a proof is of what was held when it began; nothing opens beside a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checklist_kit import Bench, soak_result

from agent.checklist import step_check
from agent.checklist.load import load_checklist
from agent.checklist.may_start import refuse_unless_held, why_not_held
from agent.checklist.model import Checklist
from agent.checklist.record import RunRecord
from agent.checklist.resume import take_up, to_resume
from agent.checklist.run import Run
from agent.checklist.steps import CalledOff
from agent.checklist.store import RecordError
from agent.errors import ConfigError
from agent.holds import Hold
from agent.model import Verdict
from agent.one_shot import run_pass
from agent.profile_loader import load_profile

STEPS = """
  - {id: look, title: L, why: W, timeout_s: 60, on_fail: Look., check: [gpu.count]}
  - {id: asked, title: A, why: W, timeout_s: 60, on_fail: Ask., question: "Which?", number: {unit: C}}
  - {id: open, title: O, why: W, timeout_s: 60, on_fail: Read the log., gate: {soak_s: 180}}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.yaml").write_text(f"name: mine\ntitle: M\nwhy: W\nneeds: closed\nsteps:{STEPS}")
    path = tmp_path / "site.yaml"
    path.write_text(json.dumps({"checklists_dir": str(own)}))
    node = [file for file in made.loaded.files if file.name == "profile.yaml"]
    made.loaded = load_profile(path, overlays=node)
    made.daemon.enter_maintenance("coolant")
    yield made
    made.close()


@pytest.fixture
def mine(bench: Bench) -> Checklist:
    return load_checklist(bench.folder / "own" / "mine.yaml")


def run_of(bench: Bench, mine: Checklist, record: RunRecord) -> Run:
    return Run(bench.given(mine, record, {"asked": "30"}), bench.store)


def leave_at_the_gate(bench: Bench, mine: Checklist) -> None:
    """The holds have ended, and whoever waits for the engines calls the run off."""
    given = bench.given(mine, bench.record(mine), {"asked": "30"})
    passed = bench.daemon.passed

    def called_off(run_id: str, soak_s: float) -> list[str]:
        said = passed(run_id, soak_s)
        given.cancelled.set()
        return said

    bench.daemon.passed = called_off  # type: ignore[method-assign]
    with pytest.raises(CalledOff):
        Run(given, bench.store).go()
    bench.daemon.passed = passed  # type: ignore[method-assign]


def resumed(bench: Bench, mine: Checklist) -> RunRecord:
    record = to_resume(bench.store, mine)
    take_up(record, mine, bench.clock.boot_id())
    return run_of(bench, mine, record).go()


def test_a_run_that_is_called_off_at_the_gate_waits_on(
    bench: Bench, mine: Checklist, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_at_the_gate(bench, mine)
    record = to_resume(bench.store, mine)
    daemon = bench.daemon
    warming = {"mode": "manage", "gates": [{"engine": "main", "state": "warming"}]}
    with monkeypatch.context() as patched:
        patched.setattr(daemon, "status", lambda: warming)
        refuse_unless_held(daemon, mine, record)
        take_up(record, mine, "after a reboot")  # what is done again needs closed gates again
        with pytest.raises(ConfigError, match=r"main \(warming\) may be started at any moment, beside mine"):
            refuse_unless_held(daemon, mine, record)
        with pytest.raises(ConfigError, match=r'enter --reason "\.\.\." --run-dir /tmp/x$'):
            refuse_unless_held(daemon, mine, record, Path("/tmp/x"))
    record = resumed(bench, mine)
    assert record.verdict is Verdict.PASS and bench.daemon.states() == ["serving"]


def test_a_proof_of_before_ends_no_later_maintenance(bench: Bench, mine: Checklist) -> None:
    leave_at_the_gate(bench, mine)
    bench.clock.now_s += 60
    bench.daemon.enter_maintenance("pump")
    record = resumed(bench, mine)
    assert record.verdict is Verdict.FAIL and "began after" in record.steps[2].summary, record.steps[2]
    held = bench.daemon.gates.maintenance
    assert held is not None and held.reason.startswith("pump [run ")
    assert resumed(bench, mine).verdict is Verdict.FAIL, "its own word in the reason makes it no proof"


def test_a_proof_of_before_clears_no_later_quarantine(bench: Bench, mine: Checklist) -> None:
    leave_at_the_gate(bench, mine)
    bench.clock.now_s += 60
    gates, (name,) = bench.daemon.gates, bench.daemon.gates.records
    hold = Hold("Xid 79", "nodegate", bench.clock.wall_s(), bench.clock.boot_id())
    record = gates.records[name]
    gates.records[name] = replace(record, holds=replace(record.holds, quarantine=hold))
    ended = resumed(bench, mine)
    assert ended.verdict is Verdict.FAIL and "began after" in ended.steps[2].summary, ended.steps[2]
    assert gates.records[name].holds.quarantine == hold


def test_the_maintenance_that_a_run_itself_entered_is_ended_by_it(bench: Bench, mine: Checklist) -> None:
    bench.daemon.soak = soak_result(("gpu.throttle gpu3: throttled",))
    assert run_of(bench, mine, bench.record(mine)).go().verdict is Verdict.FAIL
    assert bench.daemon.gates.maintenance is not None
    bench.daemon.soak = soak_result(())
    assert resumed(bench, mine).verdict is Verdict.PASS
    assert bench.daemon.gates.maintenance is None


def test_a_gate_step_that_breaks_leaves_the_node_in_maintenance(bench: Bench, mine: Checklist) -> None:
    """The holds have ended by then: nothing may end the run without a word to the daemon."""
    daemon = bench.daemon
    bench.daemon.status = lambda: {"holds": {}, "results": []}  # type: ignore[method-assign]
    record = run_of(bench, mine, bench.record(mine)).go()
    assert record.verdict is Verdict.UNKNOWN and "the step broke: KeyError" in record.steps[2].summary
    held = daemon.gates.maintenance
    assert held is not None and held.reason.startswith(f"run {record.run_id} failed at open: the step broke")


def test_checks_that_take_longer_than_their_step_do_not_pass(
    bench: Bench, mine: Checklist, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*given: Any, **more: Any) -> Any:
        bench.sleep(61)
        return run_pass(*given, **more)

    monkeypatch.setattr(step_check, "run_pass", slow)
    record = run_of(bench, mine, bench.record(mine)).go()
    assert record.verdict is Verdict.UNKNOWN and "not done within 60 s" in record.steps[0].summary
    held = bench.daemon.gates.maintenance
    assert held is not None and "failed at look: not done within 60 s" in held.reason


@pytest.mark.parametrize("good", [False, True])
def test_a_gate_whose_end_cannot_be_kept(
    bench: Bench, mine: Checklist, monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    """The disk is full by the end of the gate step: the engine that did not come up is held all the same."""
    bench.daemon.soak = soak_result(() if good else ("gpu.throttle gpu3: throttled",))
    record, write = bench.record(mine), bench.store.write

    def full(kept: RunRecord, progress: dict[str, object]) -> None:
        if kept.steps[2].verdict is not None:
            raise RecordError("no space left")
        write(kept, progress)

    monkeypatch.setattr(bench.store, "write", full)
    with pytest.raises(RecordError):
        run_of(bench, mine, record).go()
    assert (bench.daemon.gates.maintenance is None) == good


@pytest.mark.parametrize(
    ("mode", "state", "may"),
    [
        ("manage", "failed", False),
        ("manage", "preflight", False),
        ("manage", "warming", False),
        ("gate", "failed", True),
        ("manage", "maintenance", True),
        ("manage", "quarantined", True),
        ("manage", "stopped", True),
    ],
)
def test_closed_gates_whose_engines_may_start(mode: str, state: str, may: bool) -> None:
    told = why_not_held({"mode": mode, "gates": [{"engine": "main", "state": state}]}, "burn-in")
    assert told == (None if may else f"main ({state}) may be started at any moment, beside burn-in")
    open_ = why_not_held({"mode": mode, "gates": [{"engine": "main", "state": "serving"}]}, "burn-in")
    assert open_ == "main still works for clients, and burn-in would disturb it"
