"""Crashes, lost GPUs and failed starts, on the SIMULATED library."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_lib import NvmlFile, uuid_of

from agent.errors import DeviceLost, SourceUnavailable
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.nvml import NvmlProcess

Start = Callable[..., NvmlProcess]
Children = Callable[[], list[int]]


def margins(nvml: NvmlProcess, numbers: range | list[int]) -> list[int]:
    return [nvml.read(uuid_of(number), NvmlGroup.THERMAL).integer("margin_c") for number in numbers]


@pytest.mark.parametrize(("fault", "signal"), [("segv", "SIGSEGV"), ("abort", "SIGABRT")])
def test_a_crash_costs_one_answer(
    start: Start, node: NvmlFile, children: Children, clock: Callable[[], float], fault: str, signal: str
) -> None:
    nvml = start(mono_s=clock)
    nvml.inventory()
    first = children()
    node.fault(fault, gpu=6, call="nvmlDeviceGetGpuFabricInfoV")
    with pytest.raises(SourceUnavailable, match=f"was ended by {signal} during fabric of {uuid_of(6)}"):
        nvml.read(uuid_of(6), NvmlGroup.FABRIC)
    assert margins(nvml, [0, 1, 2, 3, 4, 5, 7]) == [50] * 7
    assert len(children()) == 1
    assert children() != first
    node.fault("none", gpu=6, call="nvmlDeviceGetGpuFabricInfoV")
    clock.now_s += 1.5
    assert nvml.read(uuid_of(6), NvmlGroup.FABRIC).integer("state") == 3


def test_a_child_killed_while_idle_is_replaced_unnoticed(nvml: NvmlProcess, children: Children) -> None:
    nvml.inventory()
    (pid,) = children()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert margins(nvml, range(8)) == [50] * 8
    assert pid not in children()


def test_a_lost_gpu_is_lost_and_keeps_its_identity(nvml: NvmlProcess, node: NvmlFile) -> None:
    before = nvml.inventory()
    node.fault("GPU_IS_LOST", gpu=3)
    with pytest.raises(DeviceLost, match="GPU_IS_LOST"):
        nvml.read(uuid_of(3), NvmlGroup.POWER)
    after = nvml.inventory()
    assert after[3].error == "GPU_IS_LOST"
    assert (after[3].uuid, after[3].pci_bus_id, after[3].serial) == (
        before[3].uuid, before[3].pci_bus_id, before[3].serial,
    )  # fmt: skip
    assert [gpu.uuid for gpu in after] == [gpu.uuid for gpu in before]
    assert margins(nvml, [2, 4]) == [50, 50]


def test_a_gpu_lost_before_the_first_look(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.fault("GPU_IS_LOST", gpu=3)
    gpus = nvml.inventory()
    assert (gpus[3].uuid, gpus[3].error) == (None, "GPU_IS_LOST")
    assert [gpu.uuid for gpu in gpus if gpu.uuid] == [uuid_of(n) for n in range(8) if n != 3]
    with pytest.raises(DeviceLost, match="which may be"):
        nvml.read(uuid_of(3), NvmlGroup.POWER)


@pytest.mark.parametrize("call", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"])
def test_lost_in_the_middle_of_a_group(nvml: NvmlProcess, node: NvmlFile, call: str) -> None:
    node.fault("RESET_REQUIRED", gpu=1, call=call)
    with pytest.raises(DeviceLost, match="RESET_REQUIRED"):
        nvml.read(uuid_of(1), NvmlGroup.POWER)


def test_lost_inside_a_bulk_read(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu1.field.165.17": "GPU_IS_LOST"})
    with pytest.raises(DeviceLost):
        nvml.read(uuid_of(1), NvmlGroup.NVLINK)


def test_slow_error_counters_are_a_group_of_their_own(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu1.field.161": "GPU_IS_LOST"})
    nvlink = nvml.read(uuid_of(1), NvmlGroup.NVLINK)
    assert nvlink.booleans("states") == [True] * 18
    assert nvlink.integers("speeds_mb_s") == [26562] * 18
    with pytest.raises(DeviceLost):
        nvml.read(uuid_of(1), NvmlGroup.NVLINK_ERRORS).integers("replay_errors")
    node.set({"gpu1.field.161": 5})
    assert nvml.read(uuid_of(1), NvmlGroup.NVLINK_ERRORS).integers("replay_errors") == [5] * 18


def test_a_gpu_missing_from_a_fresh_enumeration_is_still_listed(
    start: Start, node: NvmlFile, clock: Callable[[], float], children: Children
) -> None:
    nvml = start(mono_s=clock)
    nvml.inventory()
    first = children()
    node.set({"gpu3.fault": "GPU_IS_LOST", "gpu3.present": 0})
    assert nvml.inventory()[3].error == "GPU_IS_LOST"
    assert children() == first
    clock.now_s += 61
    gpus = nvml.inventory()
    assert children() != first, "a process that has seen a lost GPU is renewed after a while"
    assert nvml.system().device_count == 7
    assert [gpu.uuid for gpu in gpus] == [uuid_of(n) for n in range(8)]
    assert gpus[3].error == "GPU_IS_LOST"
    with pytest.raises(DeviceLost, match="no longer finds it"):
        nvml.read(uuid_of(3), NvmlGroup.THERMAL)
    assert margins(nvml, [2, 4]) == [50, 50]


def test_a_gpu_that_was_reset_is_found_again(
    start: Start, node: NvmlFile, clock: Callable[[], float]
) -> None:
    nvml = start(mono_s=clock)
    nvml.inventory()
    node.set({"gpu3.fault": "RESET_REQUIRED"})
    with pytest.raises(DeviceLost):
        nvml.read(uuid_of(3), NvmlGroup.THERMAL)
    node.set({"gpu3.fault": "none"})
    clock.now_s += 61
    assert margins(nvml, [3]) == [50]
    assert {gpu.error for gpu in nvml.inventory()} == {None}


def test_nvml_must_start_again_after_a_driver_reload(
    start: Start, node: NvmlFile, clock: Callable[[], float], children: Children
) -> None:
    nvml = start(mono_s=clock)
    nvml.inventory()
    first = children()
    node.fault("UNINITIALIZED", call="nvmlDeviceGetMarginTemperature")
    assert not isinstance(nvml.read(uuid_of(0), NvmlGroup.THERMAL).values["margin_c"], int)
    clock.now_s += 61
    nvml.read(uuid_of(0), NvmlGroup.THERMAL)
    assert children() != first


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("DRIVER_NOT_LOADED", "kernel driver is not loaded"),
        ("LIB_RM_VERSION_MISMATCH", "different versions: reboot"),
        ("NO_PERMISSION", "no permission for /dev/nvidia"),
        ("UNKNOWN", "it answers UNKNOWN"),
    ],
)
def test_init_that_fails_says_what_to_do(
    start: Start, node: NvmlFile, clock: Callable[[], float], children: Children, error: str, advice: str
) -> None:
    node.fault(error, call="nvmlInitWithFlags")
    nvml = start(mono_s=clock)
    with pytest.raises(SourceUnavailable, match=advice):
        nvml.inventory()
    assert children() == []
    with pytest.raises(SourceUnavailable, match=f"{advice}.*next try in 2 s"):
        nvml.read(uuid_of(0), NvmlGroup.THERMAL)
    node.fault("none", call="nvmlInitWithFlags")
    clock.now_s += 3
    assert margins(nvml, [0]) == [50]


def test_no_library(start: Start, tmp_path: Path) -> None:
    nvml = start(library=str(tmp_path / "libnvidia-ml.so.1"))
    with pytest.raises(
        SourceUnavailable, match=r"libnvidia-ml\.so\.1 is not there: install the NVIDIA driver"
    ):
        nvml.system()


def test_a_system_call_that_nvml_refuses(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.fault("UNKNOWN", call="nvmlSystemGetDriverVersion")
    with pytest.raises(SourceUnavailable, match="UNKNOWN for the system"):
        nvml.system()
