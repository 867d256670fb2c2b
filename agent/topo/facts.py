"""What of a machine's topology an operator records: places, ways and NVLinks by slot and by card."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from agent.checks.gpus import GpuSlot, read
from agent.checks.nic_vpd import serial_number
from agent.checks.pci_paths import PCI_DEVICES, RDMA_DEVICES, PciPlace, address_of_rdma, distance, place_of
from agent.errors import DeviceAbsent, ParseError, SourceError
from agent.node_parts import ExpectedGpu, ExpectedNic, ExpectedTopology, PciWay
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NOT_KNOWN, NvmlGroup
from agent.topo.machine import active_links, address_of, gpus_by_address, nics_by_address

OK = 0
#: NVML_P2P_STATUS_*: anything else is no answer.
_STATUSES = range(-1, 7)


@dataclass(frozen=True, slots=True)
class Others:
    """The GPUs that one is compared with: place in NVML's list and on PCI by slot; lost ones are left out."""

    in_nvml: Mapping[int, int]
    places: Mapping[int, PciPlace]


def others(sources: Sources, found: Mapping[int, GpuSlot]) -> Others:
    """The places of those GPUs that are well."""
    try:
        order = [gpu.uuid for gpu in sources.nvml.inventory()]
    except SourceError:
        order = []
    in_nvml, places = {}, {}
    for slot in found.values():
        with suppress(SourceError):
            uuid, _ = slot.known()
            places[slot.number] = place_of(sources, address_of(slot))
            in_nvml[slot.number] = order.index(uuid) if uuid in order else -1
    return Others({slot: at for slot, at in in_nvml.items() if at >= 0}, places)


def nvlink_peers(sources: Sources, slot: GpuSlot, profile: NodeProfile, known: Others) -> set[int]:
    """Slots that a GPU reaches over NVLink without another GPU between (through switches counts as straight).

    Raises NotSupported, ParseError where NVML does not say.
    """
    if profile.nvlink.links_per_gpu == 0 or len(known.in_nvml) < 2:
        return set()
    row = read(sources, slot, NvmlGroup.PEERS).integers("p2p_nvlink")
    reached = set()
    for number, at in known.in_nvml.items():
        if number == slot.number:
            continue
        status = row[at] if at < len(row) else NOT_KNOWN
        if status not in _STATUSES or status == NOT_KNOWN:
            raise ParseError(f"NVML does not say whether NVLink reaches gpu{number}")
        if status == OK:
            reached.add(number)
    return reached


def hops(reach: Mapping[int, set[int]], one: int, other: int) -> int | None:
    """NVLink steps from GPU to GPU on the shortest way; None when there is no way."""
    seen, edge, steps = {one}, {one}, 0
    while edge:
        if other in edge:
            return steps
        edge = {peer for slot in edge for peer in reach.get(slot, set())} - seen
        seen |= edge
        steps += 1
    return None


def ways(place: PciPlace, known: Others, own: int | None = None) -> dict[int, PciWay]:
    """The PCIe way from a place to every GPU but its own."""
    return {number: _way(distance(place, other)) for number, other in known.places.items() if number != own}


def _way(text: str) -> PciWay:
    if text in ("PIX", "PXB", "PHB", "NODE", "SYS"):
        return text  # type: ignore[return-value]
    raise ParseError(f"{text} is no way between PCI devices")


def nic_place(sources: Sources, device: str) -> PciPlace:
    """Where an RDMA device is. Raises DeviceAbsent, ParseError."""
    return place_of(sources, address_of_rdma(sources, device))


def nic_serial(sources: Sources, device: str) -> str:
    """The card's own serial number. Raises SourceError where the kernel shows it to root alone."""
    return serial_number(sources.tree.data(f"{PCI_DEVICES}/{address_of_rdma(sources, device)}/vpd"))


def device_with_serial(sources: Sources, serial: str) -> str | None:
    """The RDMA device whose card has a serial number now; None when no readable one has."""
    for device in sources.tree.names(RDMA_DEVICES):
        with suppress(SourceError):
            if nic_serial(sources, device) == serial:
                return device
    return None


def record(sources: Sources, profile: NodeProfile) -> ExpectedTopology:
    """The topology of the machine as it is, to be looked over by a person and put into the profile.

    Raises SourceError when anything of it cannot be read: what is recorded is complete.
    """
    found = {slot.number: slot for slot in gpus_by_address(sources, profile).values()}
    known = others(sources, found)
    gpus = {number: _gpu(sources, slot, profile, known) for number, slot in sorted(found.items())}
    nics = [_nic(sources, device, known) for device in nics_by_address(sources, profile)]
    return ExpectedTopology(gpus=gpus, nics=nics)


def _gpu(sources: Sources, slot: GpuSlot, profile: NodeProfile, known: Others) -> ExpectedGpu:
    uuid, _ = slot.known()
    place = known.places.get(slot.number)
    if place is None:
        raise DeviceAbsent(f"sysfs has no place for {slot.subject}")
    return ExpectedGpu(
        uuid=uuid,
        pci_bus_id=place.address,
        numa_node=place.numa_node,
        links=active_links(sources, slot, profile),
        peers=sorted(nvlink_peers(sources, slot, profile, known)),
        paths=ways(place, known, slot.number),
    )


def _nic(sources: Sources, device: str, known: Others) -> ExpectedNic:
    place = nic_place(sources, device)
    serial: str | None = None
    with suppress(SourceError):  # the kernel shows it to root alone, and not every card has one
        serial = nic_serial(sources, device)
    return ExpectedNic(
        device=device,
        serial=serial,
        pci_bus_id=place.address,
        numa_node=place.numa_node,
        paths=ways(place, known),
    )
