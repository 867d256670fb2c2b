"""Calls that hang and processes stuck in the kernel, on the SIMULATED library."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from nvml_lib import NvmlFile, uuid_of

from agent.errors import SourceError, SourceTimeout, SourceUnavailable
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.nvml import NvmlProcess
from agent.sources.nvml_pipe import Process, reap

Start = Callable[..., NvmlProcess]
Children = Callable[[], list[int]]

#: For calls that hang for ever; a healthy call must stay below it also on a busy machine.
SHORT_S = 1.5


class StickyReaper:
    """Stands in for the kernel: while `sticky`, a killed process does not go."""

    def __init__(self) -> None:
        self.sticky = True

    def __call__(self, process: Process, wait_s: float) -> bool:
        return not self.sticky and reap(process, max(wait_s, 10.0))


def margins(nvml: NvmlProcess, numbers: range | list[int]) -> list[int]:
    return [nvml.read(uuid_of(number), NvmlGroup.THERMAL).integer("margin_c") for number in numbers]


def test_a_hung_gpu_times_out_and_the_others_go_on(start: Start, node: NvmlFile, children: Children) -> None:
    nvml = start(deadline_s=SHORT_S)
    assert margins(nvml, range(8)) == [50] * 8
    first = children()
    node.fault("hang", gpu=3, call="nvmlDeviceGetMarginTemperature")
    failures: list[SourceError] = []

    def read_hung() -> None:
        with pytest.raises(SourceTimeout, match=uuid_of(3)) as caught:
            nvml.read(uuid_of(3), NvmlGroup.THERMAL)
        failures.append(caught.value)

    threads = [threading.Thread(target=read_hung) for _ in range(4)]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    assert margins(nvml, [0, 1, 2, 4, 5, 6, 7]) == [50] * 7
    for thread in threads:
        thread.join()
    assert len(failures) == 4
    assert time.monotonic() - began_s < 3 * SHORT_S, "four callers of a hung GPU wait one deadline, not four"
    assert len(children()) == 1
    assert children() != first


def test_a_hung_gpu_rests_and_comes_back(start: Start, node: NvmlFile, clock: Callable[[], float]) -> None:
    nvml = start(deadline_s=SHORT_S, mono_s=clock)
    nvml.inventory()
    node.fault("hang", gpu=3)
    with pytest.raises(SourceTimeout, match=r"within 1\.5 s"):
        nvml.read(uuid_of(3), NvmlGroup.THERMAL)
    began_s = time.monotonic()
    for group in NvmlGroup:
        with pytest.raises(SourceTimeout, match="next try in 10 s"):
            nvml.read(uuid_of(3), group)
    assert time.monotonic() - began_s < SHORT_S, "a resting GPU is not asked"
    gpus = nvml.inventory()
    assert (gpus[3].uuid, gpus[3].error) == (uuid_of(3), "TIMEOUT")
    assert [gpu.error for gpu in gpus].count(None) == 7
    clock.now_s += 11
    with pytest.raises(SourceTimeout, match=r"within 1\.5 s"):
        nvml.read(uuid_of(3), NvmlGroup.THERMAL)
    with pytest.raises(SourceTimeout, match="next try in 20 s"):
        nvml.read(uuid_of(3), NvmlGroup.THERMAL)
    node.fault("none", gpu=3)
    clock.now_s += 21
    assert margins(nvml, [3]) == [50]
    assert nvml.inventory()[3].error is None


def test_a_gpu_that_hangs_from_the_start_is_only_its_own_problem(start: Start, node: NvmlFile) -> None:
    node.fault("hang", gpu=3)
    nvml = start(deadline_s=SHORT_S)
    gpus = nvml.inventory()
    assert [gpu.uuid for gpu in gpus] == [uuid_of(n) if n != 3 else None for n in range(8)]
    assert gpus[3].error == "TIMEOUT"
    assert margins(nvml, [0, 7]) == [50, 50]
    with pytest.raises(SourceTimeout, match=uuid_of(3)):
        nvml.read(uuid_of(3), NvmlGroup.THERMAL)


def test_counters_that_hang(start: Start, node: NvmlFile) -> None:
    nvml = start(deadline_s=SHORT_S)
    nvml.inventory()
    node.set({"us.field.162": 10_000_000})
    with pytest.raises(SourceTimeout, match=f"nvlink_errors of {uuid_of(1)}"):
        nvml.read(uuid_of(1), NvmlGroup.NVLINK_ERRORS)
    assert margins(nvml, [0, 2]) == [50, 50]


def test_init_that_hangs_has_a_deadline_and_rests(
    start: Start, node: NvmlFile, clock: Callable[[], float], children: Children
) -> None:
    node.fault("hang", call="nvmlInitWithFlags")
    nvml = start(start_deadline_s=SHORT_S, mono_s=clock)
    with pytest.raises(SourceTimeout, match=r"its start within 1\.5 s"):
        nvml.system()
    assert children() == []
    with pytest.raises(SourceTimeout, match="next try in 10 s"):
        nvml.inventory()
    with pytest.raises(SourceTimeout, match="next try in 10 s"):
        nvml.read(uuid_of(0), NvmlGroup.THERMAL)
    node.fault("none", call="nvmlInitWithFlags")
    clock.now_s += 11
    nvml = start(mono_s=clock)
    assert nvml.system().device_count == 8


def test_a_system_call_that_hangs_spares_the_gpus(start: Start, node: NvmlFile) -> None:
    nvml = start(deadline_s=SHORT_S)
    nvml.inventory()
    node.fault("hang", call="nvmlSystemGetDriverVersion")
    with pytest.raises(SourceTimeout, match="the system"):
        nvml.system()
    assert margins(nvml, range(8)) == [50] * 8


def test_a_gpu_whose_process_cannot_be_killed_is_left_out(
    start: Start, node: NvmlFile, clock: Callable[[], float], children: Children
) -> None:
    reaper = StickyReaper()
    nvml = start(deadline_s=SHORT_S, mono_s=clock, reaper=reaper)
    nvml.inventory()
    node.fault("hang", gpu=3)
    with pytest.raises(SourceTimeout):
        nvml.read(uuid_of(3), NvmlGroup.THERMAL)
    assert margins(nvml, [0, 1, 2, 4, 5, 6, 7]) == [50] * 7
    clock.now_s += 1000
    with pytest.raises(SourceUnavailable, match=r"is left out: process \d+ hung in it.*reboot"):
        nvml.read(uuid_of(3), NvmlGroup.THERMAL)
    gpus = nvml.inventory()
    assert (gpus[3].uuid, gpus[3].error) == (uuid_of(3), "TIMEOUT")
    reaper.sticky = False
    node.fault("none", gpu=3)
    assert margins(nvml, [3]) == [50], "once the process is gone the GPU is asked again"
    assert len(children()) == 1


def test_two_stuck_processes_need_a_reboot(start: Start, node: NvmlFile, clock: Callable[[], float]) -> None:
    reaper = StickyReaper()
    nvml = start(deadline_s=SHORT_S, mono_s=clock, reaper=reaper)
    nvml.inventory()
    node.set({"gpu3.fault": "hang", "gpu4.fault": "hang"})
    for number in (3, 4):
        with pytest.raises(SourceTimeout):
            nvml.read(uuid_of(number), NvmlGroup.THERMAL)
    clock.now_s += 1000
    for call in (nvml.system, nvml.inventory, lambda: nvml.read(uuid_of(0), NvmlGroup.THERMAL)):
        with pytest.raises(
            SourceUnavailable, match=r"processes \d+, \d+ are stuck in the kernel.*reboot the node"
        ):
            call()
    reaper.sticky = False
    assert margins(nvml, [0]) == [50]


def test_a_stuck_start_is_not_tried_again(start: Start, node: NvmlFile, clock: Callable[[], float]) -> None:
    reaper = StickyReaper()
    node.fault("hang", call="nvmlInitWithFlags")
    nvml = start(start_deadline_s=SHORT_S, mono_s=clock, reaper=reaper)
    with pytest.raises(SourceTimeout):
        nvml.system()
    clock.now_s += 1000
    began_s = time.monotonic()
    with pytest.raises(SourceUnavailable, match="left out"):
        nvml.read(uuid_of(0), NvmlGroup.THERMAL)
    assert time.monotonic() - began_s < SHORT_S
    reaper.sticky = False
