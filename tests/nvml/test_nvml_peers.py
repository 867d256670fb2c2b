"""Pairs of GPUs: where one hangs, crashes or is lost, which of the two pays; on the SIMULATED library."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nvml_lib import NvmlFile, uuid_of

from agent.errors import DeviceLost, SourceTimeout, SourceUnavailable
from agent.sources.gpu_reading import NOT_KNOWN, NvmlGroup, NvmlRefusal
from agent.sources.nvml import NvmlProcess
from agent.sources.nvml_pipe import Process, reap

Start = Callable[..., NvmlProcess]
Children = Callable[[], list[int]]
PAIR = "nvmlDeviceGetP2PStatus"
SHORT_S = 1.5


def p2p(nvml: NvmlProcess, number: int) -> list[int]:
    return nvml.read(uuid_of(number), NvmlGroup.PEERS).integers("p2p_nvlink")


def margins(nvml: NvmlProcess, numbers: range | list[int]) -> list[int]:
    return [nvml.read(uuid_of(number), NvmlGroup.THERMAL).integer("margin_c") for number in numbers]


def row(**special: int) -> list[int]:
    return [special.get(f"gpu{number}", 0) for number in range(8)]


def test_values_by_pair_in_the_order_of_the_inventory(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu1.p2p.2.3": 4, "gpu1.p2p.0.6": 5, "gpu1.topology.2": 10})
    node.set({"gpu0.pci_bus_id": "00010000:01:00.0"})  # last in bus order now
    peers = nvml.read(uuid_of(1), NvmlGroup.PEERS)
    assert [gpu.index for gpu in nvml.inventory()] == [1, 2, 3, 4, 5, 6, 7, 0]
    assert peers.integers("p2p_nvlink") == [0, 0, 4, 0, 0, 0, 0, 0]
    assert peers.integers("p2p_read") == [0, 0, 0, 0, 0, 5, 0, 0]
    assert peers.integers("topology") == [0, 10, 30, 50, 50, 50, 50, 30]


def test_a_gpu_alone_has_nobody_to_reach(start: Start, node: NvmlFile) -> None:
    node.set({"count": 1})
    peers = start().read(uuid_of(0), NvmlGroup.PEERS)
    assert dict(peers.values) == {"p2p_nvlink": [0], "p2p_read": [0], "topology": [0]}
    assert peers.mono_s > 0


def test_a_pair_refused_is_not_known_and_all_refused_is_a_refusal(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu1.p2p.2.3": "UNKNOWN"})
    assert p2p(nvml, 1) == row(gpu3=NOT_KNOWN)
    node.set({"gpu1.p2p.2": "NOT_SUPPORTED", "gpu1.p2p.2.3": "NOT_SUPPORTED"})
    peers = nvml.read(uuid_of(1), NvmlGroup.PEERS)
    assert peers.values["p2p_nvlink"] == NvmlRefusal("NOT_SUPPORTED")
    assert peers.integers("p2p_read") == [0] * 8


def test_a_lost_gpu_is_its_own_loss(nvml: NvmlProcess, node: NvmlFile) -> None:
    nvml.inventory()
    node.fault("GPU_IS_LOST", gpu=5)
    assert p2p(nvml, 2) == row(gpu5=NOT_KNOWN)
    with pytest.raises(DeviceLost):
        p2p(nvml, 5)


@pytest.mark.parametrize(("fault", "error"), [("hang", SourceTimeout), ("segv", SourceUnavailable)])
def test_a_pair_that_fails_costs_pairs_alone_and_only_one_try(
    start: Start,
    node: NvmlFile,
    clock: Callable[[], float],
    children: Children,
    fault: str,
    error: type[Exception],
) -> None:
    nvml = start(deadline_s=SHORT_S, mono_s=clock)
    nvml.inventory()
    node.fault(fault, gpu=5, call=PAIR)
    with pytest.raises(error, match=f"{uuid_of(2)} with {uuid_of(5)}"):
        p2p(nvml, 2)
    first = children()
    assert margins(nvml, range(8)) == [50] * 8, "both GPUs answer for themselves"
    for number in (0, 1, 3, 4, 6, 7):
        assert p2p(nvml, number) == row(gpu2=NOT_KNOWN, gpu5=NOT_KNOWN)
    for number in (2, 5):
        with pytest.raises(error, match="next try in"):
            p2p(nvml, number)
    after = children()
    assert len(after) == 1
    assert not first or after == first, "nobody touched the pair again"
    node.fault("none", gpu=5, call=PAIR)
    clock.now_s += 11
    assert p2p(nvml, 2) == p2p(nvml, 5) == [0] * 8


def test_a_gpu_that_hangs_is_never_touched_as_a_peer(start: Start, node: NvmlFile) -> None:
    nvml = start(deadline_s=SHORT_S)
    nvml.inventory()
    node.fault("hang", gpu=5)
    with pytest.raises(SourceTimeout):
        nvml.read(uuid_of(5), NvmlGroup.POWER)
    for number in (0, 7):
        assert p2p(nvml, number) == row(gpu5=NOT_KNOWN), "no deadline is spent"
    with pytest.raises(SourceTimeout, match="next try in"):
        p2p(nvml, 5)


def test_a_pair_whose_process_cannot_be_killed_leaves_out_both(
    start: Start, node: NvmlFile, clock: Callable[[], float]
) -> None:
    sticky = True

    def reaper(process: Process, wait_s: float) -> bool:
        return not sticky and reap(process, max(wait_s, 10.0))

    nvml = start(deadline_s=SHORT_S, mono_s=clock, reaper=reaper)
    nvml.inventory()
    node.fault("hang", gpu=5, call=PAIR)
    with pytest.raises(SourceTimeout):
        p2p(nvml, 2)
    clock.now_s += 1000
    assert margins(nvml, [0, 1, 3, 4, 6, 7]) == [50] * 6
    for number in (2, 5):
        with pytest.raises(SourceUnavailable, match=r"left out: process \d+ hung in it.*reboot"):
            margins(nvml, [number])
    assert p2p(nvml, 0) == row(gpu2=NOT_KNOWN, gpu5=NOT_KNOWN)
    sticky = False
    node.fault("none", gpu=5, call=PAIR)
    assert p2p(nvml, 2) == [0] * 8


def test_two_unkillable_pairs_need_a_reboot(start: Start, node: NvmlFile, clock: Callable[[], float]) -> None:
    sticky = True

    def reaper(process: Process, wait_s: float) -> bool:
        return not sticky and reap(process, max(wait_s, 10.0))

    nvml = start(deadline_s=SHORT_S, mono_s=clock, reaper=reaper)
    nvml.inventory()
    node.set({f"gpu5.fault.{PAIR}": "hang", f"gpu6.fault.{PAIR}": "hang"})
    for number in (2, 3):
        with pytest.raises(SourceTimeout):
            p2p(nvml, number)
    for call in (nvml.inventory, lambda: p2p(nvml, 0), lambda: margins(nvml, [0])):
        with pytest.raises(SourceUnavailable, match=r"processes \d+, \d+ are stuck.*reboot the node"):
            call()
    sticky = False


def test_a_gpu_that_crashes_for_ever_costs_less_and_less(
    start: Start, node: NvmlFile, clock: Callable[[], float]
) -> None:
    nvml = start(mono_s=clock)
    nvml.inventory()
    node.fault("segv", gpu=5, call="nvmlDeviceGetSramEccErrorStatus")
    crashes, began_s = 0, clock.now_s
    while clock.now_s - began_s < 60:
        try:
            nvml.read(uuid_of(5), NvmlGroup.ECC)
        except SourceUnavailable as error:
            crashes += "next try" not in str(error)
        clock.now_s += 5
        assert margins(nvml, [5]) == [50], "the rest of the GPU goes on after a second"
    assert 4 <= crashes <= 6, "not each of twelve times"
