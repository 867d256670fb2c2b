"""How far apart two PCI devices are by their places in the device tree, as nvidia-smi topo names it.

/sys/bus/pci/devices/ADDRESS is a link to `../../../devices/pci0000:14/0000:14:01.0/.../ADDRESS`: the root
complex, then every bridge on the way. PIX: one PCIe switch at most, PXB: several, PHB: through the host
bridge, NODE: through several host bridges of one NUMA node, SYS: between NUMA nodes (a full matrix is in
NVIDIA/nccl#1453).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.checks.pci import normal_address
from agent.errors import ParseError
from agent.sources import Sources

PCI_DEVICES = "sys/bus/pci/devices"
RDMA_DEVICES = "sys/class/infiniband"
#: Nearest first.
NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
#: Below the bridge that two devices share, one more bridge each (the switch's ports) is still one switch.
_ONE_SWITCH = 2


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where a PCI device is: root complex first, itself last, and the NUMA node that the firmware names."""

    address: str
    path: tuple[str, ...]
    numa_node: int


def place_of(sources: Sources, address: str) -> PciPlace:
    """The place of a device. Raises DeviceAbsent, ParseError."""
    target = sources.tree.link_target(f"{PCI_DEVICES}/{address}")
    parts = target.split("/")
    roots = [at for at, part in enumerate(parts) if _ROOT.fullmatch(part)]
    if not roots or normal_address(parts[-1]) != address:
        raise ParseError(f"/{PCI_DEVICES}/{address} points to {target[:80]!r}, which is no place of it")
    path = tuple(parts[roots[-1] :])
    return PciPlace(address, path, numa_node_of(sources, address))


def numa_node_of(sources: Sources, address: str) -> int:
    """The NUMA node of a PCI device; -1 = the firmware names none. Raises DeviceAbsent, ParseError."""
    node = sources.tree.integer(f"{PCI_DEVICES}/{address}/numa_node")
    if not -1 <= node < 1024:
        raise ParseError(f"/{PCI_DEVICES}/{address}/numa_node reads {node}")
    return node


def address_of_rdma(sources: Sources, device: str) -> str:
    """The PCI address of an RDMA device. Raises DeviceAbsent, ParseError."""
    target = sources.tree.link_target(f"{RDMA_DEVICES}/{device}/device")
    return normal_address(target.rpartition("/")[2])


def distance(one: PciPlace, other: PciPlace) -> str:
    """PIX, PXB, PHB, NODE or SYS between two devices."""
    if one.path[0] != other.path[0]:
        same = one.numa_node == other.numa_node and one.numa_node >= 0
        return "NODE" if same else "SYS"
    shared = 0
    for mine, others in zip(one.path, other.path, strict=False):
        if mine != others:
            break
        shared += 1
    if shared == 1:
        return "PHB"
    below = max(len(one.path), len(other.path)) - shared
    return "PIX" if below <= _ONE_SWITCH else "PXB"
