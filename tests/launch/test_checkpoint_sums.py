"""Sums in the background, the stage index, and the live evidence that checks read."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode
from sparse_checkpoint import small_config, small_shards, write_checkpoint

from agent import commands
from agent.errors import LaunchError, SourceUnavailable
from agent.launch.checkpoint import checksums as sums_module
from agent.launch.checkpoint.checksums import Checksums, SumsState, read_sums
from agent.launch.checkpoint.fault import CheckpointFault
from agent.launch.checkpoint.inventory import INDEX, read_inventory
from agent.launch.checkpoint.spread import Spread, spread_of
from agent.launch.checkpoint.stage_index import stage_index_problems, write_stage_index
from agent.launch.checkpoint.where import weights_folder
from agent.launch.evidence import REFRESH_S, STALE_S, LiveLaunches, Look, attach_launches
from agent.node_profile import Engine, Launch
from agent.sources.launch_reading import LaunchReport, Severity

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
DEADLINE_S = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "weights", small_shards(), small_config())
    return tmp_path / "weights"


def sums_of(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("*.safetensors")}


def write_sums(path: Path, sums: dict[str, str]) -> Path:
    path.write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))
    return path


def sizes_of(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.glob("*.safetensors")}


def until(look: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """Look until it is good."""
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        found = look()
        if good(found):
            return found
        time.sleep(0.002)
    raise AssertionError(f"still {found}")


def done(state: SumsState) -> bool:
    return state.percent == 100


# Sums


def test_sums_are_worked_out_and_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, sizes = tmp_path / "checksums.json", sizes_of(folder)
    first = Checksums(store)
    assert until(lambda: first.look(folder, sizes), done).sums == sums_of(folder)
    until(store.is_file, bool)
    first.close()
    monkeypatch.setattr(Checksums, "_sum", lambda *_: pytest.fail("an unchanged file is read again"))
    assert done(Checksums(store).look(folder, sizes))


def test_a_stopped_agent_goes_on_with_the_next_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sizes = tmp_path / "checksums.json", sizes_of(folder)
    read: list[str] = []
    real = Checksums._sum

    def stop_after_one(self: Checksums, path: Path) -> Any:
        read.append(path.name)
        if len(read) == 2:
            self._stop.set()
        return real(self, path)

    monkeypatch.setattr(Checksums, "_sum", stop_after_one)
    first = Checksums(store)
    first.look(folder, sizes)
    until(lambda: len(read) == 2, bool)
    first.close()
    second = Checksums(store)
    assert list(second.look(folder, sizes).sums) == [FIRST]
    until(lambda: second.look(folder, sizes), done)
    assert read == [FIRST, SECOND, SECOND]


def test_a_changed_file_is_read_again(folder: Path) -> None:
    sums, sizes = Checksums(None), sizes_of(folder)
    until(lambda: sums.look(folder, sizes), done)
    with (folder / FIRST).open("rb+") as file:
        file.seek(-1, 2)
        file.write(b"x")
    assert not done(sums.look(folder, sizes))
    assert until(lambda: sums.look(folder, sizes), done).sums == sums_of(folder)


def test_progress_is_in_percent_and_never_100_too_early(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums_module, "CHUNK_BYTES", 1 << 20)
    reached, go = threading.Event(), threading.Event()

    class Slow:
        """A digest that waits in the middle."""

        def update(self, _chunk: bytes) -> None:
            reached.set()
            go.wait(DEADLINE_S)

        def hexdigest(self) -> str:
            return "0" * 64

    monkeypatch.setattr(hashlib, "sha256", Slow)
    sums, sizes = Checksums(None), sizes_of(folder)
    assert sums.look(folder, sizes).percent == 0
    assert reached.wait(DEADLINE_S)
    assert 0 <= sums.look(folder, sizes).percent < 100
    go.set()
    until(lambda: sums.look(folder, sizes), done)


def test_without_work_only_what_is_known_is_told(folder: Path) -> None:
    state = Checksums(None, work=False).look(folder, sizes_of(folder))
    assert (state.percent, dict(state.sums)) == (0, {})
    assert not [thread for thread in threading.enumerate() if thread.name == "checksums"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sums": 7}', '{"sums": {"x": "y", "z": 3}}'])
def test_a_garbled_store_begins_anew(folder: Path, tmp_path: Path, text: str) -> None:
    store = tmp_path / "checksums.json"
    store.write_text(text)
    assert Checksums(store, work=False).look(folder, sizes_of(folder)).sums == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello\n", "line 1 is not `SUM  NAME`"),
        (f"{'a' * 64}  x\n{'b' * 64}  x\n", "line 2 names x again"),
        ("\xff\xfe" * 40, "line 1 is not"),
    ],
)
def test_a_garbled_list_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "SHA256SUMS"
    path.write_text(text, "latin-1")
    with pytest.raises(CheckpointFault, match=told):
        read_sums(path)


def test_the_format_of_sha256sum_is_read(tmp_path: Path) -> None:
    path = tmp_path / "SHA256SUMS"
    path.write_text(f"{'A' * 64} *./one.safetensors\n\n{'b' * 64}  two.safetensors\n")
    assert read_sums(path) == {"one.safetensors": "a" * 64, "two.safetensors": "b" * 64}


# Stage index


def two_stages(rank: int = 0) -> Spread:
    """The first or second node of a model of two stages."""
    flags = {"pipeline-parallel-size": 2, "nnodes": 2, "node-rank": rank}
    return spread_of("e", Engine(gpus=[0], port=8000, launch=Launch(flags=flags)))


def test_a_stage_index_names_just_its_stage(folder: Path, tmp_path: Path) -> None:
    (folder / SECOND).unlink()  # the other node's
    path = tmp_path / "stage.json"
    assert write_stage_index(path, read_inventory(folder), two_stages()) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    found = json.loads(path.read_text())
    assert set(found["weight_map"]) == set(small_shards()[FIRST])
    assert set(found["weight_map"].values()) == {FIRST}
    assert stage_index_problems(path, read_inventory(folder), two_stages()) == []
    assert [entry.name for entry in tmp_path.iterdir() if "stage" in entry.name] == ["stage.json"]


def test_a_stage_index_is_refused_without_its_files(folder: Path, tmp_path: Path) -> None:
    (folder / SECOND).unlink()
    with pytest.raises(LaunchError, match=f"missing or broken: {SECOND}; copy them first"):
        write_stage_index(tmp_path / "stage.json", read_inventory(folder), two_stages(rank=1))
    assert not (tmp_path / "stage.json").exists()
    with pytest.raises(LaunchError, match="cannot be written"):
        write_stage_index(tmp_path / "no" / "stage.json", read_inventory(folder), two_stages())
    with pytest.raises(LaunchError, match="own index"):
        write_stage_index(folder / INDEX, read_inventory(folder), two_stages())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LaunchError, match="no plain file"):
        write_stage_index(tmp_path / "pipe", read_inventory(folder), two_stages())


def test_a_wrong_stage_index_is_named(folder: Path, tmp_path: Path) -> None:
    path, inventory = tmp_path / "stage.json", read_inventory(folder)

    def told() -> str:
        (problem,) = stage_index_problems(path, inventory, two_stages())
        assert problem.severity is Severity.ERROR
        assert "--write-stage-index" in problem.remedy
        return problem.text

    assert told() == "the stage index is missing"
    write_stage_index(path, inventory, two_stages(rank=1))
    assert told() == "does not name just the tensors of this node's stages"
    write_stage_index(path, inventory, two_stages())
    path.chmod(0o644)
    assert told() == "is writable (mode 644)"
    path.write_text("{")
    assert "is no JSON" in told()


# Evidence


def live(
    folder: Path, tmp_path: Path, checkpoint: dict[str, Any] | None = None
) -> tuple[LiveLaunches, FakeNode]:
    """Evidence of engine glm on a fake node, its weights in `folder`."""
    launch = {"model": str(folder), "flags": {"tensor-parallel-size": 4}, "checkpoint": checkpoint or {}}
    profile = h200_profile({"engines": {"glm": {"launch": launch}}})
    node = h200_node()
    return LiveLaunches(profile, node.sources, tmp_path, work=True, wait_s=DEADLINE_S), node


def test_memory_and_checkpoint_are_told(folder: Path, tmp_path: Path) -> None:
    path = write_sums(tmp_path / "SHA256SUMS", sums_of(folder))
    launches, _ = live(folder, tmp_path, {"checksums": str(path)})
    assert "GiB left after offload" in launches.memory("glm").summary
    first = launches.checkpoint("glm")
    assert first.problems == ()
    assert first.pending in ("checksums 0 %", "")
    until((tmp_path / "checksums.json").is_file, bool)
    launches.close()
    with pytest.raises(SourceUnavailable, match="no engine other"):
        launches.memory("other")
    with pytest.raises(SourceUnavailable, match="names no folder"):
        launches.checkpoint("kimi")


def test_a_wrong_sum_is_an_error_as_soon_as_it_is_known(folder: Path, tmp_path: Path) -> None:
    path = write_sums(tmp_path / "SHA256SUMS", sums_of(folder) | {FIRST: "0" * 64})
    launches, node = live(folder, tmp_path, {"checksums": str(path)})

    def look() -> LaunchReport:
        node.clock.now_s += REFRESH_S
        return launches.checkpoint("glm")

    found = until(look, lambda report: bool(report.problems))
    assert found.problems[0].where == str(folder / FIRST)
    assert "sha256 sum is not the one of the list" in str(found.problems[0])
    launches.close()


def test_headers_are_read_again_only_after_a_change(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches, node = live(folder, tmp_path)
    assert launches.checkpoint("glm").problems == ()
    (folder / SECOND).unlink()
    node.clock.now_s += REFRESH_S
    found = until(lambda: launches.checkpoint("glm"), lambda report: bool(report.problems))
    assert SECOND in str(found.problems[0])
    monkeypatch.setattr("agent.launch.evidence.scan", lambda *_: pytest.fail("read again"))
    node.clock.now_s += REFRESH_S
    assert launches.checkpoint("glm").problems == found.problems


def test_another_profile_is_looked_at_anew(folder: Path, tmp_path: Path) -> None:
    launches, _ = live(folder, tmp_path)
    assert launches.memory("glm").problems == ()
    flags = {"tensor-parallel-size": 4, "gpu-memory-utilization": 1.5}
    launches.take_profile(
        h200_profile({"engines": {"glm": {"launch": {"model": str(folder), "flags": flags}}}})
    )
    (problem,) = launches.memory("glm").problems
    assert problem.severity is Severity.ERROR
    assert "--gpu-memory-utilization is 1.5" in str(problem)


def test_engines_are_looked_at_together(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = {name: {"launch": {"model": str(folder)}} for name in ("glm", "kimi")}
    launches = LiveLaunches(
        h200_profile({"engines": engines}), h200_node().sources, None, work=False, wait_s=DEADLINE_S
    )
    both = threading.Barrier(2)

    def together(name: str, engine: Engine) -> Spread:
        both.wait(DEADLINE_S)  # breaks unless the other engine is looked at meanwhile
        return spread_of(name, engine)

    monkeypatch.setattr("agent.launch.evidence.spread_of", together)
    assert launches.checkpoint("glm").problems == ()
    assert launches.checkpoint("kimi").problems == ()


def test_a_look_that_hangs_is_no_evidence() -> None:
    now_s, hang = [100.0], threading.Event()
    look = Look("memory of glm", lambda: now_s[0], wait_s=0.0)
    with pytest.raises(SourceUnavailable, match=r"^memory of glm: still being looked at$"):
        look.report("key", lambda: (hang.wait(DEADLINE_S), LaunchReport("well"))[1])
    hang.set()
    patient = Look("memory of glm", lambda: now_s[0], wait_s=0.1)
    assert until(lambda: _or_none(patient), bool).summary == "well"
    assert patient.report("key", lambda: LaunchReport("well")).summary == "well"
    stuck = threading.Event()
    now_s[0] += REFRESH_S
    assert patient.report("key", lambda: (stuck.wait(DEADLINE_S), LaunchReport("late"))[1]).summary == "well"
    now_s[0] += STALE_S
    with pytest.raises(SourceUnavailable, match="still being looked at, the last answer is 320 s old"):
        patient.report("key", lambda: LaunchReport("never asked"))
    stuck.set()


def _or_none(look: Look) -> LaunchReport | None:
    try:
        return look.report("key", lambda: LaunchReport("well"))
    except SourceUnavailable:
        return None


def test_a_defect_is_no_evidence_and_is_named() -> None:
    look = Look("flags of glm", lambda: 0.0, wait_s=DEADLINE_S)
    with pytest.raises(SourceUnavailable, match="a defect of nodegate: ZeroDivisionError"):
        look.report("key", lambda: LaunchReport(str(1 // 0)))


def test_only_a_managed_node_gets_evidence() -> None:
    class Opened:
        """Sources as a command opens them."""

        def __init__(self) -> None:
            self.sources = replace(h200_node().sources)

    managed = Opened()
    assert attach_launches(managed, h200_profile(), None, work=False) is managed.sources.launches
    assert attach_launches(Opened(), h200_profile({"mode": "gate"}), None, work=False) is None


def test_commands_open_live_sources_with_evidence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Opened:
        """Live sources that follow nothing."""

        sources = h200_node().sources

        def start(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(commands, "_live", lambda *_: Opened())
    with commands.open_sources(h200_profile(), state_dir=tmp_path) as opened:
        assert isinstance(opened.sources.launches, LiveLaunches)


def test_the_folder_of_weights_is_followed_into_a_container() -> None:
    def of(**launch: Any) -> str | None:
        return weights_folder(Launch(**launch))

    assert of(model="org/name") is None
    assert of(model="/models/x") == "/models/x"
    assert of(model="org/name", checkpoint={"path": "/data/x"}) == "/data/x"
    mounts = [{"source": "/srv/weights/", "target": "/models"}, {"source": "/srv/k3", "target": "/models/k3"}]
    box = {"image": f"x@sha256:{'0' * 64}", "mounts": mounts}
    assert of(model="/models/k3/a", runtime="podman", container=box) == "/srv/k3/a"
    assert of(model="/models/k2", runtime="podman", container=box) == "/srv/weights/k2"
    assert of(model="/elsewhere", runtime="podman", container=box) == "/elsewhere"
