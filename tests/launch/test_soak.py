"""The soak: what the hardware may not do meanwhile, and what becomes of an engine that did not pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode

from agent.checks.registry import load_all
from agent.engine_evidence import SoakResult
from agent.errors import LaunchError, SourceTimeout
from agent.launch import soak as module
from agent.launch.engine_state import EngineEvent, EventKind
from agent.launch.soak import Soaker
from agent.launch.soak_memory import SoakMemory
from agent.launch.soak_watch import SoakWatch
from agent.launch.status_book import StatusBook
from agent.model import EnginePhase, EngineStatus
from agent.node_profile import NodeProfile
from agent.sources import CanaryReport, CanaryVerdict
from agent.sources.engine import Completion, CompletionRequest, EngineBoard

CHECKS = load_all()
GOOD = Completion(200, " x", "length", 64)


def profile(*, rdma: bool = False, **soak: Any) -> NodeProfile:
    part = {"soak": {"duration_s": 60, "concurrent": 2, "retry_s": 0, **soak}, "launch": {"rdma": rdma}}
    return h200_profile({"engines": {"glm": part}})


def watched(change: Callable[[FakeNode, int], None], *, rdma: bool = False, looks: int = 5) -> SoakWatch:
    """A watch after some looks ten seconds apart; `change` is called before each."""
    node, of = h200_node(), profile(rdma=rdma)
    watch = SoakWatch(of, of.engines["glm"], node.sources, CHECKS, 60)
    for look in range(looks):
        change(node, look)
        watch.sample(last=look == looks - 1)
        node.clock.now_s += 10
    return watch


def nothing(node: FakeNode, look: int) -> None:
    """A healthy node."""


def test_a_healthy_node_passes_and_its_extremes_are_kept() -> None:
    def warmer(node: FakeNode, look: int) -> None:
        node.set("nvml.gpus.2.power.draw_w", 600.0 + look)

    watch = watched(warmer, rdma=True)
    assert watch.faults == () and watch.missing() == ()
    assert {"gpu.throttle", "gpu.thermal_margin", "gpu.power_dips", "nvlink.errors", "roce.errors"} <= set(
        watch.watched
    )
    assert [peak.subject for peak in watch.peaks] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert watch.peaks[2].max_draw_w == 604 and watch.peaks[2].min_margin_c is not None
    assert "roce.errors" not in watched(nothing, looks=2).watched


def at(path: str, value: Any, *looks: int) -> Callable[[FakeNode, int], None]:
    """The value at these looks, what was there before at all others."""
    before: list[Any] = []

    def change(node: FakeNode, look: int) -> None:
        group, name = path.rsplit(".", 1)
        index, part = group.split(".")[2:]
        values = node.data["nvml"]["gpus"][int(index)][part]
        before.extend([] if before else [values[name]])
        node.set(path, value if look in looks else before[0])

    return change


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (at("nvml.gpus.3.power.event_reasons", 0x40, 1, 2), ["gpu.throttle gpu3: hardware thermal slowdown"]),
        (at("nvml.gpus.3.power.event_reasons", 0x40, 1, 3), []),  # never twice in a row
        (at("nvml.gpus.5.power.event_reasons", 0x40, 1, 2, 3), []),  # another engine's GPU
        (at("nvml.gpus.1.thermal.margin_c", 2, 2, 3), ["gpu.thermal_margin gpu1: "]),
        (at("nvml.gpus.0.nvlink_errors.replay_errors", [9] * 18, 4), ["nvlink.errors gpu0: "]),
    ],
)
def test_what_fails_a_soak(change: Callable[[FakeNode, int], None], faults: list[str]) -> None:
    found = [fault for fault in watched(change).faults if not fault.startswith("gpu.power_dips")]
    assert len(found) == len(faults), found
    assert all(fault.startswith(start) for fault, start in zip(found, faults, strict=True))


def test_missing_evidence_is_no_pass() -> None:
    watch = watched(at("nvml.gpus.3.power.event_reasons", {"error": "TIMEOUT"}, 4))
    assert any(told.startswith("gpu.throttle gpu3: ") for told in watch.missing())
    assert any("not looked at twice" in told for told in watched(nothing, looks=1).missing())


@dataclass
class FakeMonitor:
    """A warm engine each of whose completions takes a second of the node's clock."""

    node: FakeNode
    answers: list[Completion | Exception] = field(default_factory=list)
    each: Callable[[], None] = lambda: None
    asked: list[CompletionRequest] = field(default_factory=list)
    canaries: int = 0
    #: When a request was taken for a canary.
    witnessed: list[float] = field(default_factory=list)
    verdict: CanaryVerdict = CanaryVerdict.OK
    hangs: bool = False

    async def served_model(self) -> str:
        return "glm"

    async def alphabet(self) -> tuple[int, ...]:
        return ()

    async def complete(self, request: CompletionRequest, deadline_s: float) -> Completion:
        await asyncio.sleep(0)
        self.asked.append(request)
        self.node.clock.now_s += 1
        if self.hangs:
            self.node.clock.now_s += 60
            await asyncio.Event().wait()
        self.each()
        answer = self.answers.pop(0) if self.answers else GOOD
        if isinstance(answer, Exception):
            raise answer
        return answer

    def witness(self, words: str) -> None:
        self.witnessed.append(self.node.clock.now_s)

    async def canary(self) -> CanaryReport:
        self.canaries += 1
        return CanaryReport(self.verdict, self.node.clock.now_s, 0.1)


@dataclass
class Stage:
    """A soaker, its book in phase up, and what both have said."""

    folder: Path
    node: FakeNode = field(default_factory=h200_node)
    statuses: list[EngineStatus] = field(default_factory=list)
    marks: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.monitor = FakeMonitor(self.node)
        self.book = StatusBook(
            "glm", self.node.clock, EngineBoard(), self.statuses.append, lambda *mark: self.marks.append(mark)
        )
        self.book.apply(EngineEvent(EventKind.START))
        self.book.apply(EngineEvent(EventKind.HEALTHY))

    def soak(self, run: str = "boot 1", **soak: Any) -> list[SoakResult]:
        """All results until it has passed."""
        soaker = Soaker("glm", profile(**soak), self.node.sources, self.folder)
        asyncio.run(soaker.until_passed(run, self.monitor, self.book))  # type: ignore[arg-type]
        found: list[SoakResult] = []
        for status in self.statuses:
            if status.soak is not None and status.soak not in found:
                found.append(status.soak)
        if self.book.soak is not None and self.book.soak not in found:
            found.append(self.book.soak)
        return found


async def _at_once(function: Callable[[], None], deadline_s: float) -> None:
    function()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(module, "SAMPLE_S", 0.0)
    monkeypatch.setattr(module, "in_spare_thread", _at_once)  # time stands still during a look
    return Stage(tmp_path)


def test_a_soak_that_passes_is_kept_and_not_repeated(stage: Stage) -> None:
    (result,) = stage.soak()
    assert result.passed and result.seconds >= 60 and result.tokens == 64 * result.completions > 0
    assert stage.monitor.canaries == 1  # the one from before the soak is old by now
    assert len(stage.monitor.witnessed) == result.completions  # meanwhile engine.health rests on the answers
    assert {len(request.prompt) for request in stage.monitor.asked} == {256}
    assert len({request.prompt for request in stage.monitor.asked}) == len(stage.monitor.asked)
    assert stage.monitor.asked[0].body()["ignore_eos"] is True
    assert stage.book.phase is EnginePhase.UP  # whoever asked makes it warm
    assert [mark for mark, _ in stage.marks] == ["soak"]
    assert stage.marks[0][1].startswith("engine glm: soak passed: ")
    asked = len(stage.monitor.asked)
    stage.soak()  # an agent that was restarted
    assert len(stage.monitor.asked) == asked
    stage.soak(run="boot 2")  # another process
    assert len(stage.monitor.asked) > asked


def test_none_without_a_duration(stage: Stage) -> None:
    assert stage.soak(duration_s=0) == [] and not stage.monitor.asked


def test_a_hot_room_keeps_the_gate_closed_and_the_engine_up_until_it_is_cool(stage: Stage) -> None:
    def heat() -> None:
        hot = 20 < len(stage.monitor.asked) < 40
        stage.node.set("nvml.gpus.3.power.event_reasons", 0x40 if hot else 0x4)

    stage.monitor.each = heat
    *failed, passed = stage.soak()
    assert failed and passed.passed
    assert not any(result.passed for result in failed)
    assert failed[0].faults[0].startswith("gpu.throttle gpu3: hardware thermal slowdown")
    assert failed[0].seconds < 60  # no reason to go on heating
    reasons = [status.reason for status in stage.statuses]
    assert any("the gate stays closed, next soak in 0 s" in reason for reason in reasons)
    assert {status.phase for status in stage.statuses[1:]} == {EnginePhase.UP}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Completion(500, error="EngineDeadError"), "soak: a request failed: HTTP 500: EngineDeadError"),
        (SourceTimeout("no answer in 300 s"), "soak: a request failed: no answer"),
    ],
)
def test_an_engine_that_fails_under_load_has_failed(stage: Stage, answer: Any, error: str) -> None:
    stage.monitor.answers = [GOOD, GOOD, answer]
    with pytest.raises(LaunchError, match=error):
        stage.soak()
    assert not list(stage.folder.glob("*.soaked"))
    assert len(stage.monitor.witnessed) < len(stage.monitor.asked)


@pytest.mark.parametrize("verdict", [CanaryVerdict.DEAD, CanaryVerdict.WRONG])
def test_an_engine_that_hangs_is_no_hot_room_to_wait_for(stage: Stage, verdict: CanaryVerdict) -> None:
    stage.monitor.hangs, stage.monitor.verdict = True, verdict
    with pytest.raises(LaunchError, match=f"the canary after the soak is {verdict}"):
        stage.soak()
    assert "no request ended" in stage.marks[0][1]


def test_what_is_remembered_can_be_garbled_or_unwritable(tmp_path: Path) -> None:
    path = tmp_path / "engine-x.soaked"
    memory = SoakMemory(path)
    assert not memory.passed("a")
    memory.remember("a")
    assert memory.passed("a") and not memory.passed("b")
    path.write_bytes(b"\xff" * 5000)
    assert not memory.passed("a")
    (tmp_path / "file").touch()
    SoakMemory(tmp_path / "file" / "x").remember("a")  # told in the log; the next agent soaks again
