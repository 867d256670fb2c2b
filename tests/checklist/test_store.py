"""Records on the disk: garbled ones are no evidence, names are not followed, one run at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checklist_kit import Bench
from cli_words import in_process
from fake_h200 import h200_data, h200_profile
from fake_sources import FakeNode
from server_kit import profile as node_without_gpus

from agent.checklist.hardware import differences, parts_of
from agent.checklist.load import load_named
from agent.checklist.past_runs import PastRuns
from agent.checklist.progress import progress_of
from agent.checklist.record import RunRecord
from agent.checklist.store import RecordError, RunStore, replace_file
from agent.checklist.watch import ChecklistWatch
from agent.commands.status import checklist_line
from agent.errors import SourceUnavailable
from agent.launch.soak import Soaker
from agent.launch.soak_demand import UNREADABLE_S, SoakDemand
from agent.model import Verdict
from agent.sources.checklist_runs import RunEnd


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def kept(
    bench: Bench, name: str = "burn-in", verdict: Verdict | None = Verdict.PASS, **changes: Any
) -> RunRecord:
    """A run that has ended so, kept."""
    record = bench.record(load_named(name, None), **changes)
    for step in record.steps:
        step.verdict = Verdict.PASS
    if verdict is Verdict.FAIL:
        record.steps[-1].verdict, record.steps[-1].summary = Verdict.FAIL, "gpu3 throttled"
    record.verdict = verdict
    bench.store.write(record, progress_of(record))
    bench.clock.now_s += 10
    return record


def past(bench: Bench) -> PastRuns:
    return PastRuns(bench.store, bench.sources, lambda: bench.loaded)


def test_a_garbled_record_is_no_evidence(bench: Bench) -> None:
    kept(bench)
    newest = kept(bench)
    for text in (b"", b"{", b"null", b'{"schema_version": 1}', b"\xff\xfe", b"[]", b'{"run_id": 3}'):
        (bench.store.folder / newest.run_id / "run.json").write_bytes(text)
        with pytest.raises(SourceUnavailable, match="garbled"):
            bench.store.read(newest.run_id)
        assert past(bench).runs("burn-in")[0].end is RunEnd.GARBLED, text


def test_a_record_that_is_not_a_file_of_its_own_is_not_read(bench: Bench, tmp_path: Path) -> None:
    record = kept(bench)
    path = bench.store.folder / record.run_id / "run.json"
    elsewhere = tmp_path / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(SourceUnavailable):
        bench.store.read(record.run_id)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SourceUnavailable, match="not a regular file"):
        bench.store.read(record.run_id)
    path.unlink()
    os.link(elsewhere, path)
    other = bench.store.folder / record.run_id.replace("burn-in", "bring-up")
    (bench.store.folder / record.run_id).rename(other)
    with pytest.raises(SourceUnavailable, match="says that it is run"):
        bench.store.read(other.name)


def test_a_link_in_the_place_of_a_record_is_replaced_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("precious")
    link.symlink_to(target)
    replace_file(link, b"new")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("precious", "new", False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_where_no_setgid_bit_may_be_set_files_are_given_to_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under RestrictSUIDSGID=yes of the agent's unit."""
    real = os.fchmod

    def fchmod(descriptor: int, mode: int) -> None:
        if mode & 0o2000:
            raise PermissionError(1, "Operation not permitted")
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)
    store = RunStore(tmp_path / "state")
    store.make()
    assert oct(store.folder.stat().st_mode)[-4:] == "0770"
    with store.lock():
        lock = store.folder / "lock"
        assert (oct(lock.stat().st_mode)[-3:], lock.stat().st_gid) == ("660", store.folder.stat().st_gid)


def test_a_folder_that_becomes_a_link_lends_its_rights_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root makes folders where the group may write: one that is exchanged at once must not be followed."""
    state, victim = tmp_path / "state", tmp_path / "victim"
    state.mkdir()
    victim.mkdir(mode=0o700)
    real = Path.mkdir

    def exchanged(path: Path, **more: Any) -> None:
        real(path, **more)
        if path.name == "checklists":
            path.rmdir()
            path.symlink_to(victim)

    monkeypatch.setattr(Path, "mkdir", exchanged)
    with pytest.raises(RecordError, match="cannot be kept"):
        RunStore(state).make()
    assert oct(victim.stat().st_mode)[-4:] == "0700"


def test_one_run_a_node(bench: Bench) -> None:
    other = RunStore(bench.store.state_dir)
    with bench.store.lock():
        assert other.is_running()
        with pytest.raises(RecordError, match="another run of a checklist is under way"), other.lock():
            pass
    assert not other.is_running()
    with other.lock():
        pass


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(RecordError, match=r"state/checklists: the record cannot be kept: .* free space"):
        RunStore(tmp_path / "state").make()


@pytest.mark.parametrize(
    ("changes", "verdict", "end", "words"),
    [
        ({}, Verdict.PASS, RunEnd.PASSED, "passed"),
        ({}, Verdict.WARN, RunEnd.PASSED, "passed"),
        ({}, Verdict.FAIL, RunEnd.FAILED, "ended in FAIL at after: gpu3 throttled"),
        ({}, Verdict.UNKNOWN, RunEnd.FAILED, "ended in UNKNOWN"),
        ({}, None, RunEnd.OPEN, "has not ended"),
        ({"shortened": ["load.duration_s 60 of 3600"]}, Verdict.PASS, RunEnd.PARTLY, "was shortened"),
        ({"origin": "file"}, Verdict.PASS, RunEnd.PARTLY, "not the node's own"),
        ({"steps": []}, Verdict.PASS, RunEnd.FAILED, "has no steps"),
    ],
)
def test_what_a_run_amounts_to(
    bench: Bench, changes: dict[str, Any], verdict: Verdict | None, end: RunEnd, words: str
) -> None:
    if "steps" in changes:
        record = bench.record(load_named("burn-in", None))
        record.steps, record.verdict = [], verdict
        bench.store.write(record, progress_of(record))
    else:
        record = kept(bench, verdict=verdict, **changes)
    (run,) = past(bench).runs("burn-in")
    assert run.end is end and words in run.summary
    assert run.parts == record.parts
    assert differences(run.parts, past(bench).parts_now()) == []


def test_bring_up_counts_as_burn_in_while_it_waits_for_its_gate(bench: Bench) -> None:
    bring_up = load_named("bring-up", None)
    place = bring_up.gate
    assert place is not None
    record = bench.record(bring_up)
    for step in record.steps[:place]:
        step.verdict = Verdict.PASS
    bench.store.write(record, progress_of(record))
    runs = past(bench)
    assert [run.end for run in runs.runs("burn-in")] == [RunEnd.OPEN]
    record.steps[place].started_wall_s = bench.clock.wall_s()
    bench.store.write(record, progress_of(record))
    assert [run.end for run in runs.runs("burn-in")] == [RunEnd.PASSED]
    assert runs.runs("post-maintenance") == []


def test_hardware_is_compared_part_by_part() -> None:
    before = {"gpu0": "GPU-0", "mlx5_0": "guid 1", "mlx5_0.serial": "S1", "board": "B1"}
    assert differences(before, dict(before)) == []
    # Root alone reads serial numbers: what one side could not read is not compared.
    assert differences(before, {"gpu0": "GPU-0", "mlx5_0": "guid 1"}) == []
    assert differences(before, {**before, "board": "B2"}) == ["board was B1, is B2"]
    assert differences(before, {**before, "mlx5_0.serial": "S2"}) == ["mlx5_0.serial was S1, is S2"]
    assert differences(before, {"mlx5_0": "guid 1"}) == ["gpu0 was GPU-0, is not there"]
    assert differences({}, {"gpu0": "GPU-0"}) == ["gpu0 was not there, is GPU-0"]


def test_a_node_of_which_no_part_can_be_identified_is_no_hardware_to_compare() -> None:
    data, profile = h200_data(), h200_profile()
    assert parts_of(FakeNode(data).sources, profile, serials=False)["gpu3"].startswith("GPU-")
    for gpu in data["nvml"]["gpus"]:
        gpu["identity"]["uuid"] = ""
    data["files"] = {path: text for path, text in data["files"].items() if not path.endswith("/node_guid")}
    with pytest.raises(SourceUnavailable, match="no GPU and no card of this node can be identified"):
        parts_of(FakeNode(data).sources, profile, serials=False)
    assert parts_of(FakeNode(data).sources, node_without_gpus(), serials=False) == {}


def test_the_daemon_tells_the_newest_run(bench: Bench) -> None:
    watch = ChecklistWatch(bench.store)
    watch.look()
    assert watch.current is None
    record = kept(bench, verdict=None)
    record.steps[2].verdict = None
    bench.store.write(record, progress_of(record))
    with bench.store.lock():
        watch.look()
    assert watch.current is not None and watch.current["running"] is True
    assert (watch.current["step"], watch.current["done"], watch.current["total"]) == ("before", 5, 6)
    assert checklist_line(watch.current).startswith("checklist burn-in runs: 5 of 6 steps, at before (")
    watch.look()
    assert watch.current["running"] is False
    left = checklist_line(watch.current)
    assert "burn-in was left: 5 of 6 steps" in left and re.search(
        r"since \d{4}-\d\d-\d\d [\d:]{8} UTC$", left
    )
    (bench.store.folder / record.run_id / "progress.json").write_text("[")
    watch.look()
    assert watch.current is None


def test_a_soak_that_was_asked_for_is_remembered_until_it_is_met(tmp_path: Path) -> None:
    demand = SoakDemand.of(tmp_path, "glm")
    assert demand.least_s() == 0.0
    demand.ask(180)
    assert SoakDemand.of(tmp_path, "glm").least_s() == 180.0
    for garbled in ("", "x", "nan", "-1", "inf"):
        (tmp_path / "engine-glm.soak-due").write_text(garbled)
        assert demand.least_s() == UNREADABLE_S
    demand.met()
    assert demand.least_s() == 0.0


def test_the_next_launch_soaks_as_long_as_was_asked_for(bench: Bench, tmp_path: Path) -> None:
    soaker = Soaker("kimi", bench.loaded.profile, bench.sources, tmp_path)
    usual_s = bench.loaded.profile.engines["kimi"].soak.duration_s
    assert soaker._as_asked().soak.duration_s == usual_s
    SoakDemand.of(tmp_path, "kimi").ask(usual_s + 180)
    assert soaker._as_asked().soak.duration_s == usual_s + 180
    SoakDemand.of(tmp_path, "kimi").ask(0.0)
    assert soaker._as_asked().soak.duration_s == usual_s


def test_the_command_lists_shows_and_refuses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "post-maintenance" in in_process(capsys, "checklist", "list").stdout
    shown = in_process(capsys, "checklist", "show", "burn-in").stdout
    assert "load.gpu (duration_s=3600" in shown and "asks: flows | air-cooled | no" in shown
    for words, told in (
        (("run", "burnin", "--node", str(tmp_path)), "there is no profile here"),
        (("run", "burn-in", "--answer", "coolant-seen=flows"), "--answer needs the name of who answers"),
        (("run", "burn-in", "--set", "load"), "is not STEP.PARAM=NUMBER"),
        (("show", "burnin"), "did you mean burn-in"),
        (("run", "burn-in", "--run-dir", str(tmp_path)), "no daemon answers"),
    ):
        answer = in_process(capsys, "checklist", *words)
        assert (answer.returncode, answer.stdout) == (3, ""), words
        assert told in answer.stderr


def test_a_run_by_the_command_line_is_resumed_by_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nodes import node_dir

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\ntitle: Mine\nwhy: W\nsteps:\n"
        "  - {id: look, title: L, why: W, timeout_s: 60, on_fail: F, check: [gpu.count]}\n"
        "  - {id: flow, title: Q, why: W, timeout_s: 60, on_fail: Open it., question: How much flows,"
        " number: {unit: L/min, min: 40}}\n"
    )
    words = ("checklist", "run", "mine", "--file", str(path), "--node", str(node_dir("gb10")))
    asked = in_process(capsys, *words)
    assert asked.returncode == 3 and "--resume --answer flow=NUMBER --who NAME" in asked.stderr
    refused = in_process(capsys, *words, "--resume", "--answer", "flow=much", "--who", "anna")
    assert refused.returncode == 3 and "'much' is no number" in refused.stderr
    failed = in_process(capsys, *words, "--resume", "--answer", "flow=18", "--who", "anna")
    assert failed.returncode == 1
    assert "anna reads 18 L/min, wanted >= 40" in failed.stdout and "Open it." in failed.stdout
    passed = in_process(
        capsys, *words, "--resume", "--answer", "flow=84", "--who", "anna", "--report", str(tmp_path / "r")
    )
    assert passed.returncode == 0 and "SIMULATED" in passed.stdout
    assert sorted(file.name for file in (tmp_path / "r").iterdir()) == [
        "report.html", "report.json", "report.xml",
    ]  # fmt: skip
    run_id = RunStore(tmp_path / "nodegate" / "gb10").runs()[-1]
    shown = in_process(capsys, "checklist", "show", run_id, "--node", str(node_dir("gb10")), "--json")
    assert '"attempts": 1' in shown.stdout and '"attempts": 4' in shown.stdout
