"""How far apart two PCI devices are, as nvidia-smi topo names it: live, fake and replayed trees."""

from pathlib import Path

import pytest
from fake_sources import FakeNode

from agent.checks.pci_paths import PciPlace, distance, place_of
from agent.errors import DeviceAbsent, ParseError
from agent.sources.fs import SysTree
from agent.sources.replay import replay_sources

UP, DOWN = "0000:15:01.0/0000:16:00.0", "0000:17"
GPU = ("pci0000:15", *UP.split("/"), f"{DOWN}:00.0", "0000:18:00.0")


def place(*path: str, numa_node: int = 0) -> PciPlace:
    return PciPlace(path[-1], path, numa_node)


@pytest.mark.parametrize(
    ("nic", "numa_node", "way"),
    [
        (("pci0000:15", *UP.split("/"), f"{DOWN}:01.0", "0000:19:00.0"), 0, "PIX"),
        (("pci0000:15", *UP.split("/"), f"{DOWN}:00.0", "0000:18:00.1"), 0, "PIX"),
        (
            ("pci0000:15", *UP.split("/"), f"{DOWN}:02.0", "0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"),
            0,
            "PXB",
        ),
        (("pci0000:15", "0000:15:02.0", "0000:30:00.0"), 0, "PHB"),
        (("pci0000:37", "0000:37:01.0", "0000:38:00.0"), 0, "NODE"),
        (("pci0000:97", "0000:97:01.0", "0000:98:00.0"), 1, "SYS"),
    ],
)
def test_ways_between_a_gpu_and_a_nic(nic: tuple[str, ...], numa_node: int, way: str) -> None:
    gpu, other = place(*GPU), place(*nic, numa_node=numa_node)
    assert distance(gpu, other) == distance(other, gpu) == way


def test_without_numa_nodes_two_root_complexes_are_far_apart() -> None:
    """-1 on both is no proof that they share a node."""
    one, other = (
        place("pci0000:15", "0000:16:00.0", numa_node=-1),
        place("pci0000:37", "0000:38:00.0", numa_node=-1),
    )
    assert distance(one, other) == "SYS"


def test_two_devices_of_a_virtual_machine_meet_at_its_host_bridge() -> None:
    """As found on a guest with two H200: both directly on pci0000:00."""
    one, other = (
        place("pci0000:00", "0000:00:06.0", numa_node=-1),
        place("pci0000:00", "0000:00:07.0", numa_node=-1),
    )
    assert distance(one, other) == "PHB"


def _node(target: str) -> FakeNode:
    device = "sys/bus/pci/devices/0000:18:00.0"
    return FakeNode({"nvml": {}, "files": {f"{device}/numa_node": "1"}, "links": {device: target}})


def test_a_place_is_read_from_the_link() -> None:
    found = place_of(_node("../../../devices/" + "/".join(GPU)).sources, "0000:18:00.0")
    assert (found.path, found.numa_node) == (GPU, 1)


@pytest.mark.parametrize(
    "target", ["", "garbage", "../../../devices/pci0000:15/0000:99:00.0", "0000:18:00.0"]
)
def test_a_link_that_is_no_place_is_no_evidence(target: str) -> None:
    with pytest.raises(ParseError):
        place_of(_node(target).sources, "0000:18:00.0")


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(DeviceAbsent):
        place_of(_node("x").sources, "0000:19:00.0")


def test_the_live_tree_gives_links_as_the_kernel_writes_them(tmp_path: Path) -> None:
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    real = tmp_path / "sys/devices/pci0000:00/0000:00:06.0"
    real.mkdir(parents=True)
    (real / "numa_node").write_text("-1\n")
    (devices / "0000:00:06.0").symlink_to("../../../devices/pci0000:00/0000:00:06.0")
    tree = SysTree(tmp_path)
    assert tree.link_target("sys/bus/pci/devices/0000:00:06.0") == "../../../devices/pci0000:00/0000:00:06.0"
    assert tree.integer("sys/bus/pci/devices/0000:00:06.0/numa_node") == -1


def test_a_replayed_capture_gives_them_too() -> None:
    """A guest with two H200, captured: both GPUs meet at the host bridge."""
    sources = replay_sources(Path(__file__).parents[1] / "nodes/h200-x2-live", None).sources
    one, other = (place_of(sources, address) for address in ("0000:00:06.0", "0000:00:07.0"))
    assert one.path == ("pci0000:00", "0000:00:06.0")
    assert (one.numa_node, distance(one, other)) == (-1, "PHB")
