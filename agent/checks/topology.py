"""gpu.topology: do GPUs and NICs sit where the profile has them?

sysfs: the link and numa_node of /sys/bus/pci/devices/ADDRESS, the device of /sys/class/infiniband/NAME. NVML:
nvmlDeviceGetPciInfo_v3, nvmlDeviceGetTopologyCommonAncestor. What is right comes from the profile alone,
recorded once by an operator: a topology file generated from a wrong machine must not prove itself. After PCI
enumeration has changed, an old NCCL topology file (NCCL_TOPO_FILE) no longer fits either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_slots, no_gpus, read, slots
from agent.checks.p2p import places_in_inventory
from agent.checks.pci import normal_address
from agent.checks.pci_paths import NEAREST_FIRST, PciPlace, address_of_rdma, distance, place_of
from agent.checks.ports import basis_of, subject_of
from agent.checks.registry import Limits, check, unknown
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, ParseError, SourceError, SourceUnavailable
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NOT_KNOWN, NvmlGroup

#: NVML_TOPOLOGY_SYSTEM: the way between two GPUs leaves their NUMA node.
BETWEEN_NODES = 50
_ANCESTORS = frozenset({NOT_KNOWN, 0, 10, 20, 30, 40, 50})
_MOVED = advice.person(
    "Put the card back into its slot, or, if it was moved on purpose, correct gpus.pins, gpus.numa_node and"
    " fabric.ports in the profile and generate the NCCL topology file anew."
)
#: What is wrong, what was read, what was expected, and where that comes from.
Problem = tuple[str, str | int, str | int, Basis]


def _nothing_recorded(profile: NodeProfile) -> str | None:
    gpus, ports = profile.gpus, profile.fabric.ports
    placed = any(port.numa_node is not None or (port.gpu is not None and port.path_to_gpu) for port in ports)
    if gpus.numa_node or placed or any(pin.pci_bus_id for pin in gpus.pins.values()):
        return None
    return "the profile records no topology (gpus.numa_node, pins with pci_bus_id, path_to_gpu of a port)"


def _skip(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or _nothing_recorded(profile)


@check(
    "gpu.topology",
    title="Places of GPUs and NICs",
    source="/sys/bus/pci/devices/*: link, numa_node; nvmlDeviceGetTopologyCommonAncestor",
    serving_class=ServingClass.SOFT,
    period_s=300.0,
    deadline_s=15.0,
    fail_for_s=300.0,
    unknown_for_s=900.0,
    skip=_skip,
    action=_MOVED,
)
def gpu_topology(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each GPU must be at its PCI address, on its NUMA node, and as near to its NICs as the profile says."""
    sources = reading_once(sources)
    found = slots(sources, profile)
    places = places_in_inventory(sources, found)
    yield from judge_slots(found, lambda slot: _judge_gpu(sources, slot, profile, places))
    for port in profile.fabric.ports:
        if port.numa_node is not None and port.gpu is None:
            yield _judge_lone_port(sources, profile, port)


def _judge_gpu(sources: Sources, slot: GpuSlot, profile: NodeProfile, places: Mapping[int, int]) -> Finding:
    _, gpu = slot.known()
    if not gpu.pci_bus_id:
        raise SourceUnavailable("NVML gives no PCI address for this GPU")
    place = place_of(sources, normal_address(gpu.pci_bus_id))
    problems = [
        *_address(slot, place),
        *_numa(slot, place, profile),
        *_ancestors(sources, slot, profile.gpus.numa_node, places),
    ]
    ports = [port for port in profile.fabric.ports if port.gpu == slot.number]
    for port in ports:
        problems += _port(sources, profile, port, place)
    if not problems:
        near = f", {len(ports)} NICs in place" if ports else ""
        text = f"at {place.address}, NUMA node {place.numa_node}{near}"
        return Finding(slot.subject, Verdict.PASS, text, place.address)
    text, observed, expected, basis = problems[0]
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    words = "; ".join(problem[0] for problem in problems[:3]) + more
    return Finding(slot.subject, Verdict.FAIL, words, observed, expected, action=_MOVED, basis=basis)


def _address(slot: GpuSlot, place: PciPlace) -> Iterator[Problem]:
    """The address of the pinned GPU against the pin."""
    if slot.pin is None or slot.pin.pci_bus_id is None:
        return
    want = normal_address(slot.pin.pci_bus_id)
    if place.address != want:
        basis = Basis.profile(f"gpus.pins.{slot.number}.pci_bus_id")
        yield f"at {place.address}, pinned at {want}", place.address, want, basis


def _numa(slot: GpuSlot, place: PciPlace, profile: NodeProfile) -> Iterator[Problem]:
    want = profile.gpus.numa_node.get(slot.number)
    if want is not None and place.numa_node != want:
        basis = Basis.profile(f"gpus.numa_node.{slot.number}")
        yield f"on NUMA node {place.numa_node}, expected {want}", place.numa_node, want, basis


def _ancestors(
    sources: Sources, slot: GpuSlot, nodes: Mapping[int, int], places: Mapping[int, int]
) -> Iterator[Problem]:
    """NVML's own view: do the ways to most other GPUs leave the NUMA node where the profile says otherwise?

    Most: a single GPU in the wrong place differs from all others, and the others only from that one.
    """
    others = [peer for peer in nodes if peer != slot.number and peer in places]
    if slot.number not in nodes or not others:
        return
    row = read(sources, slot, NvmlGroup.PEERS).integers("topology")
    if len(row) <= max(places.values()) or any(ancestor not in _ANCESTORS for ancestor in row):
        raise ParseError("NVML's topology of this GPU cannot be read")
    known = {peer: row[places[peer]] for peer in others if row[places[peer]] not in (NOT_KNOWN, 0)}
    mine = nodes[slot.number]
    wrong = [peer for peer, way in known.items() if (way < BETWEEN_NODES) != (mine == nodes[peer])]
    if 2 * len(wrong) > len(known):
        told = ", ".join(f"gpu{peer}" for peer in wrong[:4])
        text = f"NVML sees it on another NUMA node than the profile, by its ways to {told}"
        basis = Basis.profile(f"gpus.numa_node.{slot.number}")
        yield text, "another NUMA node", mine, basis


def _port(sources: Sources, profile: NodeProfile, port: NicPort, gpu: PciPlace) -> Iterator[Problem]:
    """A NIC of this GPU: its NUMA node, and the way between the two."""
    if port.path_to_gpu is None and port.numa_node is None:
        return
    nic = _nic_place(sources, port)
    if port.numa_node is not None and nic.numa_node != port.numa_node:
        text = f"{port.device} on NUMA node {nic.numa_node}, expected {port.numa_node}"
        yield text, nic.numa_node, port.numa_node, basis_of(profile, port, "numa_node")
    if port.path_to_gpu is None:
        return
    way = distance(gpu, nic)
    if NEAREST_FIRST.index(way) > NEAREST_FIRST.index(port.path_to_gpu):
        text = f"{way} to {port.device}, expected {port.path_to_gpu} or nearer"
        yield text, way, port.path_to_gpu, basis_of(profile, port, "path_to_gpu")


def _nic_place(sources: Sources, port: NicPort) -> PciPlace:
    """The NIC's place. Raises SourceUnavailable for one that is not there: nic.present tells that."""
    try:
        return place_of(sources, address_of_rdma(sources, port.device))
    except DeviceAbsent as cause:
        raise SourceUnavailable(f"{port.device}: {cause}: see nic.present") from cause


def _judge_lone_port(sources: Sources, profile: NodeProfile, port: NicPort) -> Finding:
    """A port that is near no GPU in particular: only its NUMA node is compared."""
    subject = subject_of(port)
    try:
        node = _nic_place(sources, port).numa_node
    except SourceError as cause:
        return unknown(subject, cause)
    want, basis = port.numa_node, basis_of(profile, port, "numa_node")
    if node == want:
        return Finding(subject, Verdict.PASS, f"on NUMA node {node}", node, want, basis=basis)
    text = f"on NUMA node {node}, expected {want}"
    return Finding(subject, Verdict.FAIL, text, node, want, action=_MOVED, basis=basis)
