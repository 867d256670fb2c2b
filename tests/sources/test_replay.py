"""Replayed sources: readings, refusals, and events at the times of a scenario."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from node_kit import UUID, SetClock, demo_node, small_documents, write_node, write_scenario
from nodes import node_dir, profile_path, scenario_path

from agent.errors import (
    ConfigError,
    DeviceAbsent,
    DeviceLost,
    NotSupported,
    SourceError,
    SourceTimeout,
    SourceUnavailable,
)
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.replay import ReplaySources, replay_sources

LOST = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
DEADLINE_S = 20.0


class Replayed:
    """A replay whose clock the test sets; `at` moves it and announces what is due."""

    def __init__(self, folder: Path, steps: Any = None, **node: Any) -> None:
        self.clock = SetClock()
        self.events: list[str] = []
        scenario = None if steps is None else write_scenario(folder, steps)
        self.replay: ReplaySources = replay_sources(
            write_node(folder / "node", **node), scenario, on_event=self.events.append, clock=self.clock
        )
        self.sources = self.replay.sources
        self._begun_s = self.clock.now_s
        self.replay._stage.started_mono_s = self._begun_s  # start() without its thread

    def at(self, elapsed_s: float) -> None:
        self.clock.now_s = self._begun_s + elapsed_s
        self.replay.tick()


def test_real_capture_reads_as_captured() -> None:
    replay = replay_sources(node_dir("h200-x1-capture"), None)
    nvml = replay.sources.nvml
    [gpu] = nvml.inventory()
    assert (gpu.pci_bus_id, gpu.name) == ("0000:00:06.0", "NVIDIA H200")
    assert nvml.system().driver_version == "580.159.04"
    thermal = nvml.read(str(gpu.uuid), NvmlGroup.THERMAL)
    assert (thermal.integer("margin_c"), thermal.integer("slowdown_offset_c")) == (49, -2)
    nvlink = nvml.read(str(gpu.uuid), NvmlGroup.NVLINK)
    assert not nvlink.supported("states")
    with pytest.raises(NotSupported):
        nvlink.booleans("states")
    with pytest.raises(SourceUnavailable, match="kmsg"):
        replay.sources.kmsg.records()
    with pytest.raises(SourceUnavailable, match=r"net\.json"):
        replay.sources.net.link("eth0")
    assert replay.sources.simulated


def test_two_gpu_capture_has_18_links_each() -> None:
    nvml = replay_sources(node_dir("h200-x2-capture"), None).sources.nvml
    for gpu in nvml.inventory():
        reading = nvml.read(str(gpu.uuid), NvmlGroup.NVLINK)
        assert reading.booleans("states") == [True] * 18
        assert reading.integers("speeds_mb_s") == [26562] * 18
        assert nvml.read(str(gpu.uuid), NvmlGroup.FABRIC).integer("state") == 3


def test_demo_node_reads_in_every_source() -> None:
    sources = replay_sources(demo_node(), None).sources
    gpus = sources.nvml.inventory()
    assert [gpu.pci_bus_id for gpu in gpus] == sorted(gpu.pci_bus_id or "" for gpu in gpus)
    assert len(gpus) == sources.nvml.system().device_count == 8
    for gpu in gpus:
        for group in NvmlGroup:
            assert sources.nvml.read(str(gpu.uuid), group).values
    info = sources.net.dcb("eth7")
    assert (info.pfc_on.index(True), dict(info.dscp_to_priority), info.trust) == (3, {26: 3, 48: 6}, "dscp")
    assert sources.net.link("eth0").mtu_bytes == 9000
    assert sources.net.ethtool_stats("eth0")["rx_prio3_discards"] == 0
    assert sources.tree.text("sys/class/infiniband/mlx5_3/ports/1/state") == "4: ACTIVE"
    assert sources.tree.integer("sys/class/infiniband/mlx5_3/device/numa_node") == 0
    assert sources.clock.boot_id() == sources.tree.text("proc/sys/kernel/random/boot_id")


def test_two_engines_overlay_uses_the_same_node() -> None:
    text = profile_path("h200-roce-two-engines").read_text()
    assert "glm" in text and "kimi" in text
    replay_sources(demo_node(), scenario_path("h200-roce-two-engines", "gpu6-lost"))


REFUSALS: list[tuple[str, type[SourceError]]] = [
    ("NOT_SUPPORTED", NotSupported),
    ("GPU_IS_LOST", DeviceLost),
    ("TIMEOUT", SourceTimeout),
    ("UNKNOWN", SourceUnavailable),
]


@pytest.mark.parametrize(("name", "kind"), REFUSALS)
def test_refusals_of_a_gpu(tmp_path: Path, name: str, kind: type[SourceError]) -> None:
    steps = [
        {"at_s": 1, "set": {"nvml.gpus.0.thermal.margin_c": {"error": name}}},
        {"at_s": 2, "set": {"nvml.gpus.0.thermal": {"error": name}}},
        {"at_s": 3, "set": {"nvml.gpus.0": {"error": name}}},
        {"at_s": 4, "set": {"nvml.system": {"error": name}}},
    ]
    node = Replayed(tmp_path, steps)
    nvml = node.sources.nvml
    node.at(1)
    with pytest.raises(kind):
        nvml.read(UUID, NvmlGroup.THERMAL).integer("margin_c")
    node.at(2)
    with pytest.raises(kind):
        nvml.read(UUID, NvmlGroup.THERMAL)
    assert nvml.read(UUID, NvmlGroup.NVLINK).booleans("states") == [True, True]
    node.at(3)
    with pytest.raises(kind):
        nvml.read(UUID, NvmlGroup.NVLINK)
    assert [(gpu.uuid, gpu.error) for gpu in nvml.inventory()] == [(UUID, name)]
    node.at(4)
    for read in (nvml.system, nvml.inventory):
        with pytest.raises(kind):
            read()


def test_a_gpu_captured_as_lost(tmp_path: Path) -> None:
    documents = small_documents()
    documents["nvml.json"]["gpus"][0] = {"identity": {"index": 0, "uuid": UUID, "error": "GPU_IS_LOST"}}
    node = Replayed(tmp_path, documents=documents)
    with pytest.raises(DeviceLost):
        node.sources.nvml.read(UUID, NvmlGroup.THERMAL)
    assert node.sources.nvml.inventory()[0].error == "GPU_IS_LOST"


def test_a_gpu_that_is_gone(tmp_path: Path) -> None:
    node = Replayed(tmp_path, [{"at_s": 1, "set": {"nvml.gpus.0": None}}])
    node.at(1)
    assert list(node.sources.nvml.inventory()) == []
    assert node.sources.nvml.system().device_count == 0
    for uuid in (UUID, "GPU-unknown"):
        with pytest.raises(DeviceAbsent):
            node.sources.nvml.read(uuid, NvmlGroup.THERMAL)


def test_group_that_was_not_captured_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="MISSING"):
        Replayed(tmp_path).sources.nvml.read(UUID, NvmlGroup.POWER)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ABSENT", DeviceAbsent),
        ("NOT_SUPPORTED", NotSupported),
        ("TIMEOUT", SourceTimeout),
        ("X", SourceUnavailable),
    ],
)
def test_refusals_of_an_interface(tmp_path: Path, name: str, kind: type[SourceError]) -> None:
    steps = [
        {"at_s": 1, "set": {"net.eth0.dcb": {"error": name}}},
        {"at_s": 2, "set": {"net.eth0": {"error": name}}},
    ]
    node = Replayed(tmp_path, steps)
    node.at(1)
    assert node.sources.net.link("eth0").operstate == "up"
    with pytest.raises(kind):
        node.sources.net.dcb("eth0")
    node.at(2)
    for read in (node.sources.net.link, node.sources.net.ethtool_stats):
        with pytest.raises(kind):
            read("eth0")
    with pytest.raises(DeviceAbsent):
        node.sources.net.link("eth9")


def test_kernel_log_times_fit_this_clock(tmp_path: Path) -> None:
    """Captured 10 s after the record at 90 s: here it happened 10 s before the replay was opened."""
    node = Replayed(tmp_path, [{"at_s": 3, "kmsg": [f"3;{LOST}"]}])
    [record] = node.sources.kmsg.records()
    assert record.mono_s == pytest.approx(node.clock.now_s - 10)
    node.at(2.9)
    assert len(node.sources.kmsg.records()) == 1
    node.at(3)
    [_, lost] = node.sources.kmsg.records()
    assert (lost.seq, lost.level, lost.text) == (2, 3, LOST)
    assert lost.mono_s == node.clock.now_s
    node.sources.kmsg.clear(node.clock.now_s)
    assert list(node.sources.kmsg.records()) == []


def test_events_are_those_that_a_live_node_would_send(tmp_path: Path) -> None:
    steps = [
        {"at_s": 1, "set": {"nvml.gpus.0.thermal.margin_c": 1, "net.eth0.dcb.trust": "dscp"}},
        {"at_s": 2, "kmsg": [f"3;{LOST}", f"3;{LOST}", "6;boring"]},
        {"at_s": 3, "set": {"net.eth0.link.operstate": "down"}},
        {"at_s": 4, "set": {"net.eth0": None}, "kmsg": ["6;mlx5_core 0000:18:00.0 eth0: Link down"]},
        {"at_s": 5, "reset": ["net.eth0"]},
    ]
    node = Replayed(tmp_path, steps)
    seen = []
    for at_s in range(1, 6):
        node.at(at_s)
        seen.append(sorted(node.events))
        node.events.clear()
    assert seen == [[], ["kmsg.xid"], ["net.link"], ["kmsg.nic", "net.link"], ["net.link"]]


def test_say_and_engine_steps(tmp_path: Path) -> None:
    node = Replayed(tmp_path, [{"at_s": 1, "say": "the engine hangs", "engine": {"main": "hang"}}])
    said: list[str] = []
    done: list[tuple[str, str]] = []
    node.replay.on_say = said.append
    node.replay.on_engine = lambda step: done.append((step.engine, step.action))
    assert [(s.at_s, s.engine, s.action) for s in node.replay.engine_steps] == [(1.0, "main", "hang")]
    node.at(0.5)
    assert (said, done) == ([], [])
    node.at(1.5)
    assert (said, done) == (["the engine hangs"], [("main", "hang")])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[ReplaySources, list[tuple[str, float]], threading.Event]]:
    """A started replay on the real clock: an Xid after 0.3 s, with the moment at which its event came."""
    came: list[tuple[str, float]] = []
    happened = threading.Event()

    def event(kind: str) -> None:
        came.append((kind, replay.sources.clock.mono_s()))
        happened.set()

    scenario = write_scenario(
        tmp_path, [{"at_s": 0.3, "kmsg": [f"3;{LOST}"]}, {"at_s": 3600, "say": "never"}]
    )
    replay = replay_sources(write_node(tmp_path / "node"), scenario, on_event=event)
    yield replay, came, happened
    replay.close()


def test_events_come_on_time_and_the_record_is_there(
    running: tuple[ReplaySources, list[tuple[str, float]], threading.Event],
) -> None:
    replay, came, happened = running
    replay.start()
    replay.start()
    assert happened.wait(DEADLINE_S)
    [(kind, at_s)] = came
    record = replay.sources.kmsg.records()[-1]
    assert (kind, record.text) == ("kmsg.xid", LOST)
    assert 0 <= at_s - record.mono_s < 5  # milliseconds on an idle machine


def test_close_does_not_wait_for_the_scenario(
    running: tuple[ReplaySources, list[tuple[str, float]], threading.Event],
) -> None:
    replay, _came, happened = running
    replay.start()
    assert happened.wait(DEADLINE_S)
    begun_s = time.monotonic()
    replay.close()
    assert time.monotonic() - begun_s < DEADLINE_S
    replay.close()


def test_a_replay_that_is_not_started_stands_at_zero(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path, [{"at_s": 0, "set": {"nvml.gpus.0.thermal.margin_c": 2}}])
    sources = replay_sources(write_node(tmp_path / "node"), scenario).sources
    assert sources.nvml.read(UUID, NvmlGroup.THERMAL).integer("margin_c") == 2


def test_faults_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        replay_sources(tmp_path / "none", None)
    with pytest.raises(ConfigError, match="no such file"):
        replay_sources(write_node(tmp_path / "node"), tmp_path / "none.yaml")
