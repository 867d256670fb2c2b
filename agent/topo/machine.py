"""The machine as it is, in NCCL's terms: PCI tree from sysfs, NVLinks from NVML.

NCCL's own detection (NVIDIA/nccl, ncclTopoGetXmlFromSys) is followed step by step, so that a file written
from it says what NCCL would find: from a device it goes up two PCI functions at a time (the lower port of a
switch is left out) until a root complex; a link is as fast as the slower of its two ends.

/sys/bus/pci/devices/ADDRESS: link, class, vendor, device, subsystem_*, max_link_speed, max_link_width,
numa_node (Documentation/ABI/testing/sysfs-bus-pci).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.checks.gpus import GpuSlot, read, slots
from agent.checks.pci import normal_address
from agent.checks.pci_paths import (
    PCI_DEVICES,
    RDMA_DEVICES,
    PciPlace,
    address_of_rdma,
    numa_node_of,
    place_of,
)
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, ParseError, SourceUnavailable
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NvmlGroup
from agent.topo.cpu import affinity, cpu_kind
from agent.topo.model import (
    HIDDEN_TARGET,
    NVSWITCH_CLASS,
    Cpu,
    Gpu,
    NvLink,
    Pairs,
    Pci,
    Stamp,
    System,
)

_IDS = ("vendor", "device", "subsystem_vendor", "subsystem_device")
#: Port and device do not tell: how a root complex and a broken link read.
_NO_SPEED = frozenset({"Unknown", "Unknown speed"})
_NO_LANES = (0, 255)
_MOST_LANES = 32


@dataclass(slots=True)
class _Node:
    """A PCI function while the tree is put together."""

    pci: Pci
    children: list[str] = field(default_factory=list)


def read_machine(sources: Sources, profile: NodeProfile, also: Iterable[str] = ()) -> System:
    """The GPUs and data ports of the profile, and further PCI functions by address, with all above them.

    `also` names functions that another topology has; those that are not there are left out. Raises
    SourceError when a GPU or port of the profile cannot be found: half a topology is none.
    """
    sources = reading_once(sources)
    gpus = gpus_by_address(sources, profile)
    nics = nics_by_address(sources, profile)
    stamps = [Stamp(slot.subject, address, slot.known()[0]) for address, slot in gpus.items()]
    stamps += [Stamp(device, address) for device, address in nics.items()]
    tree = _Tree(sources, {address: nvlinks(sources, slot, profile) for address, slot in gpus.items()})
    extra = [address for address in also if sources.tree.exists(f"{PCI_DEVICES}/{address}")]
    for address in dict.fromkeys([*gpus, *nics.values(), *extra]):
        tree.add(address)
    return System(tree.cpus(), tuple(stamps), simulated=sources.simulated)


def gpus_by_address(sources: Sources, profile: NodeProfile) -> dict[str, GpuSlot]:
    """The GPU of every slot by its PCI address. Raises the first one's problem."""
    found: dict[str, GpuSlot] = {}
    for slot in slots(sources, profile):
        address = address_of(slot)
        if address in found:
            raise ParseError(f"NVML shows {found[address].subject} and {slot.subject} both at {address}")
        found[address] = slot
    return found


def address_of(slot: GpuSlot) -> str:
    """The PCI address of a slot's GPU. Raises its problem."""
    _, gpu = slot.known()
    if not gpu.pci_bus_id:
        raise SourceUnavailable(f"NVML gives no PCI address for {slot.subject}")
    return normal_address(gpu.pci_bus_id)


def nics_by_address(sources: Sources, profile: NodeProfile) -> dict[str, str]:
    """RDMA device -> PCI address: those of the profile's data ports, or all when it names none."""
    devices = [port.device for port in profile.fabric.ports]
    if not devices and sources.tree.exists(RDMA_DEVICES):
        devices = sources.tree.names(RDMA_DEVICES)
    found: dict[str, str] = {}
    for device in dict.fromkeys(devices):
        try:
            found[device] = address_of_rdma(sources, device)
        except DeviceAbsent as cause:
            raise SourceUnavailable(f"{cause}: see nic.present") from cause
    return found


def nvlinks(sources: Sources, slot: GpuSlot, profile: NodeProfile) -> tuple[NvLink, ...]:
    """The active NVLinks of a GPU behind NVSwitches, which are one other end to NCCL.

    Links straight between GPUs are left to NCCL: NVML's other end of each is not among what is read.
    """
    if not profile.nvlink.fabric:
        return ()
    active = active_links(sources, slot, profile)
    return (NvLink(HIDDEN_TARGET, active, NVSWITCH_CLASS),) if active else ()


def active_links(sources: Sources, slot: GpuSlot, profile: NodeProfile) -> int:
    """How many NVLinks of a GPU are up; 0 on a platform without any."""
    if profile.nvlink.links_per_gpu == 0:
        return 0
    return sum(read(sources, slot, NvmlGroup.NVLINK).booleans("states"))


class _Tree:
    """Collects devices and all that is above them."""

    def __init__(self, sources: Sources, gpus: Mapping[str, tuple[NvLink, ...]]) -> None:
        self._sources, self._gpus = sources, gpus
        self._nodes: dict[str, _Node] = {}
        self._tops: dict[str, int] = {}

    def add(self, address: str) -> None:
        """One device with its way up to a CPU."""
        if address in self._nodes:
            return
        place = place_of(self._sources, address)
        chain = seen_by_nccl(place)
        below: str | None = None
        for at in reversed(chain):
            known = at in self._nodes
            if not known:
                self._nodes[at] = _Node(self._function(at, _parent(place, at)))
            if below is not None:
                self._nodes[at].children.append(below)
            if known:
                return
            below = at
        top = chain[0]
        self._tops[top] = self._numa_node(top, place.numa_node)

    def _numa_node(self, top: str, below: int) -> int:
        """The node of the topmost function, as NCCL takes it; that of the device where it tells none."""
        try:
            return numa_node_of(self._sources, top)
        except DeviceAbsent:
            return below

    def cpus(self) -> tuple[Cpu, ...]:
        """NUMA nodes in order, with the functions below them in order of address, as NCCL has them."""
        kind = cpu_kind(self._sources)
        found = []
        for node in sorted(set(self._tops.values())):
            tops = sorted(top for top, numa_node in self._tops.items() if numa_node == node)
            pcis = tuple(self._whole(top) for top in tops)
            found.append(Cpu(node, affinity(self._sources, node), kind, pcis))
        return tuple(found)

    def _whole(self, address: str) -> Pci:
        node = self._nodes[address]
        return replace(node.pci, pcis=tuple(self._whole(child) for child in sorted(node.children)))

    def _function(self, address: str, port: str | None) -> Pci:
        speed, width = link(self._sources, address, port)
        gpus = (Gpu(self._gpus[address]),) if address in self._gpus else ()
        pci_class, ids = self._sources.tree.text(f"{PCI_DEVICES}/{address}/class"), self._ids(address)
        return Pci(address, pci_class, speed, width, ids, gpus=gpus)

    def _ids(self, address: str) -> Pairs:
        """Vendor and device; a bridge may have no subsystem."""
        read = [(name, self._text(address, name)) for name in _IDS]
        return tuple((name, text) for name, text in read if text is not None)

    def _text(self, address: str, name: str) -> str | None:
        try:
            return self._sources.tree.text(f"{PCI_DEVICES}/{address}/{name}")
        except DeviceAbsent:
            return None


def seen_by_nccl(place: PciPlace) -> list[str]:
    """The functions on the way to a device that NCCL sees, from the top: every second one up from it."""
    return list(reversed(place.path[:0:-1][::2]))


def _parent(place: PciPlace, address: str) -> str | None:
    """The PCI port right above a function on the way to a device; None at a root complex."""
    at = place.path.index(address)
    return place.path[at - 1] if at > 1 else None


def link(sources: Sources, address: str, port: str | None) -> tuple[str | None, int | None]:
    """Speed as the kernel words it and lanes: of both ends of the link the lesser; None = not told.

    What is not told is left to NCCL, which believes an empty value where one stands in a file.
    """
    ends = [end for end in (address, port) if end is not None]
    speeds = [text for end in ends if (text := _speed_text(sources, end)) is not None]
    widths = [width for end in ends if (width := _width(sources, end))]
    for speed in speeds:
        gts(speed)  # of one alone, min() would not ask
    return min(speeds, key=gts, default=None), min(widths, default=None)


def gts(text: str) -> float:
    """`32.0 GT/s PCIe` as a number. Raises ParseError."""
    try:
        return float(text.split(" ", 1)[0])
    except ValueError:
        raise ParseError(f"{text[:40]!r} is not a PCIe speed") from None


def _speed_text(sources: Sources, address: str) -> str | None:
    try:
        text = sources.tree.text(f"{PCI_DEVICES}/{address}/max_link_speed")
    except DeviceAbsent:
        return None
    return None if text in _NO_SPEED else text


def _width(sources: Sources, address: str) -> int:
    """Lanes; 0 and 255 are how the kernel reads a function without a link."""
    path = f"{PCI_DEVICES}/{address}/max_link_width"
    try:
        width = sources.tree.integer(path)
    except DeviceAbsent:
        return 0
    if width in _NO_LANES:
        return 0
    if not 0 < width <= _MOST_LANES:
        raise ParseError(f"/{path} reads {width}, not a PCIe width")
    return width
