"""Readings shared by checks that run at the same time: one read, never an old one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from nvml_lib import NvmlFile, uuid_of

from agent.errors import SourceError, SourceTimeout
from agent.sources.gpu_reading import GpuReading, NvmlGroup
from agent.sources.nvml import SHARE_S, NvmlProcess
from agent.sources.nvml_ask import Answer
from agent.sources.nvml_share import SharedReads

Start = Callable[..., NvmlProcess]
UUID = uuid_of(0)


class Source:
    """Answers with how often it was asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.asked: list[list[str]] = []
        self.hold: threading.Event | None = None
        self.began = threading.Semaphore(0)

    def read(self, keys: list[str]) -> dict[str, Answer]:
        self.asked.append(keys)
        answer = Answer(self._clock(), len(self.asked))
        self.began.release()
        if self.hold is not None:
            assert self.hold.wait(30)
        return dict.fromkeys(keys, answer)


@pytest.fixture
def source(clock: Callable[[], float]) -> Source:
    return Source(clock)


def value(shared: SharedReads[str], source: Source, key: str = "a") -> int:
    got: int = shared.get([key], source.read)[key].value
    return got


def test_within_the_window_and_not_after(clock: Callable[[], float], source: Source) -> None:
    shared: SharedReads[str] = SharedReads(0.05, clock)
    assert [value(shared, source), value(shared, source)] == [1, 1]
    clock.now_s += 0.05
    assert value(shared, source) == 1
    assert value(shared, source, "b") == 2
    clock.now_s += 0.01
    assert value(shared, source) == 3


def test_no_window_shares_nothing(clock: Callable[[], float], source: Source) -> None:
    shared: SharedReads[str] = SharedReads(0.0, clock)
    assert [value(shared, source), value(shared, source)] == [1, 2]


def test_news_end_all_sharing(clock: Callable[[], float], source: Source) -> None:
    shared: SharedReads[str] = SharedReads(60.0, clock)
    source.hold = threading.Event()
    with ThreadPoolExecutor(3) as threads:
        before = threads.submit(value, shared, source)
        assert source.began.acquire(timeout=30)
        shared.drop()
        after = threads.submit(value, shared, source)
        assert source.began.acquire(timeout=30), "what is being read was begun before the news"
        source.hold.set()
    assert (before.result(), after.result()) == (1, 2)
    assert value(shared, source) == 2


def test_those_who_come_meanwhile_wait_for_the_same(clock: Callable[[], float], source: Source) -> None:
    shared: SharedReads[str] = SharedReads(0.05, clock)
    source.hold = threading.Event()
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(value, shared, source)
        assert source.began.acquire(timeout=30)
        clock.now_s += 1.0  # a slow read: who comes now still gets it
        rest = [threads.submit(value, shared, source) for _ in range(8)]
        source.hold.set()
        got = [future.result(30) for future in (first, *rest)]
    assert got[0] == 1
    assert len(source.asked) <= 2, "whoever was late began one read for all others who were"


def test_asked_together_only_the_missing_are_read(clock: Callable[[], float], source: Source) -> None:
    shared: SharedReads[str] = SharedReads(0.05, clock)
    value(shared, source, "b")
    answers = shared.get(["a", "b", "c"], source.read)
    assert {key: answer.value for key, answer in answers.items()} == {"a": 2, "b": 1, "c": 2}
    assert source.asked == [["b"], ["a", "c"]]


def test_an_interrupted_read_leaves_nobody_waiting(clock: Callable[[], float], source: Source) -> None:
    shared: SharedReads[str] = SharedReads(60.0, clock)
    began, go = threading.Event(), threading.Event()

    def interrupted(keys: list[str]) -> dict[str, Answer]:
        began.set()
        assert go.wait(30)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as threads:
        broken = threads.submit(shared.get, ["a"], interrupted)
        assert began.wait(30)
        waiting = threads.submit(value, shared, source)
        go.set()
        assert waiting.result(30) == 1
        with pytest.raises(KeyboardInterrupt):
            broken.result(30)


def test_checks_that_read_the_same_make_one_call(start: Start, node: NvmlFile) -> None:
    nvml = start(share_s=60.0)
    node.set({"us.nvmlDeviceGetTemperature": 100_000})
    with ThreadPoolExecutor(8) as threads:
        readings: list[GpuReading] = list(threads.map(lambda _: nvml.read(UUID, NvmlGroup.THERMAL), range(8)))
    assert len({reading.mono_s for reading in readings}) == 1
    assert nvml.read(UUID, NvmlGroup.THERMAL).mono_s == readings[0].mono_s
    assert nvml.inventory() is nvml.inventory()
    nvml.fresh()
    assert nvml.read(UUID, NvmlGroup.THERMAL).mono_s > readings[0].mono_s
    assert SHARE_S <= 0.2


def test_an_error_is_shared_too_and_everybody_has_his_own(start: Start, node: NvmlFile) -> None:
    nvml = start(deadline_s=1.5, share_s=60.0)
    nvml.inventory()
    node.fault("hang", gpu=0, call="nvmlDeviceGetTemperature")

    def failed(_: int) -> SourceError:
        with pytest.raises(SourceTimeout) as caught:
            nvml.read(UUID, NvmlGroup.THERMAL)
        return caught.value

    with ThreadPoolExecutor(4) as threads:
        errors = list(threads.map(failed, range(4)))
    assert {str(error) for error in errors} == {f"NVML gave no answer for thermal of {UUID} within 1.5 s"}
    assert len({id(error) for error in errors}) == 4


def test_several_groups_in_one_go_each_with_its_own_error(start: Start, node: NvmlFile) -> None:
    nvml = start(deadline_s=1.5)
    node.fault("hang", gpu=0, call="nvmlDeviceGetRemappedRows")
    groups = [NvmlGroup.THERMAL, NvmlGroup.MEMORY, NvmlGroup.FABRIC]
    many = nvml.read_many(UUID, groups)
    thermal, memory, fabric = (many[group] for group in groups)
    assert isinstance(thermal, GpuReading)
    assert thermal.integer("margin_c") == 50
    assert isinstance(memory, SourceTimeout)
    assert isinstance(fabric, SourceTimeout)
    assert "memory" in str(fabric)
    assert "next try" in str(fabric), "the GPU is left alone: it is not asked for more"
    healthy = nvml.read_many(uuid_of(1), [*groups, NvmlGroup.PEERS])
    assert all(isinstance(each, GpuReading) for each in healthy.values())
    assert {str(e) for e in nvml.read_many("GPU-none", groups).values()} == {"NVML has no GPU GPU-none"}
