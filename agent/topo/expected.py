"""The machine against the topology that an operator has recorded in the profile.

A file generated from a wrong machine fits that machine, so it proves nothing; what is right is what was
recorded when the node was built. Cards are known by UUID and serial number, not by bus id: PCI enumeration
may change at any reboot, and that alone is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.checks.gpus import GpuSlot, slots
from agent.errors import DeviceAbsent, DeviceLost, NotSupported, SourceError, SourceUnavailable
from agent.node_parts import ExpectedGpu, ExpectedNic, PciWay
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuIdentity
from agent.topo.facts import (
    Others,
    device_with_serial,
    hops,
    nic_place,
    nic_serial,
    nvlink_peers,
    others,
    ways,
)
from agent.topo.machine import active_links, address_of

#: A card is told by the first of these; the rest is counted.
_MOST_WAYS = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as recorded: `key` is where in the profile it stands."""

    text: str
    observed: str | int
    expected: str | int
    key: str


@dataclass(frozen=True, slots=True)
class Judged:
    """One recorded card: what is wrong, or why that cannot be told, and a note when all is well."""

    subject: str
    problems: tuple[Problem, ...] = ()
    unknown: SourceError | None = None
    note: str = ""


def judge(sources: Sources, profile: NodeProfile) -> Iterator[Judged]:
    """Every recorded GPU and card, in the profile's order."""
    expected = profile.topology.expected
    by_slot = {slot.number: slot for slot in slots(sources, profile)}
    found = {number: _find(sources, number, gpu, by_slot) for number, gpu in expected.gpus.items()}
    known = others(sources, {**by_slot, **found})
    scene = _Scene(found, by_slot, known, _displaced(expected.gpus, known))
    for number, gpu in expected.gpus.items():
        yield _of_gpu(sources, profile, number, gpu, scene)
    for at, nic in enumerate(expected.nics):
        yield _of_nic(sources, profile, at, nic, scene)


@dataclass(frozen=True, slots=True)
class _Scene:
    """GPUs by recorded slot, by the profile's slot as it is now, and where all of them are."""

    found: Mapping[int, GpuSlot]
    by_slot: Mapping[int, GpuSlot]
    known: Others
    displaced: frozenset[int]


def _displaced(gpus: Mapping[int, ExpectedGpu], known: Others) -> frozenset[int]:
    """GPUs that are elsewhere by what is read of themselves: another NUMA node, other ways to most GPUs.

    The ways of all other cards to such a one have changed too, which is not their fault.
    """
    found = set()
    for number, gpu in gpus.items():
        place = known.places.get(number)
        if place is None:
            continue
        wrong, told = _changed(ways(place, known, number), gpu.paths), len(gpu.paths)
        if (gpu.numa_node is not None and place.numa_node != gpu.numa_node) or 2 * len(wrong) > told > 0:
            found.add(number)
    return frozenset(found)


def _find(sources: Sources, number: int, gpu: ExpectedGpu, by_slot: Mapping[int, GpuSlot]) -> GpuSlot:
    """The GPU that was recorded for a slot, wherever it is now."""
    if gpu.uuid is None:
        missing = GpuSlot(number, None, problem=SourceUnavailable(f"gpus.count has no slot {number}"))
        return by_slot.get(number, missing)
    try:
        inventory = list(sources.nvml.inventory())
    except SourceError as cause:
        return GpuSlot(number, None, problem=cause)
    identity = next((each for each in inventory if each.uuid == gpu.uuid), None)
    if identity is None:
        return GpuSlot(number, None, problem=_absence(gpu.uuid, inventory))
    fault = DeviceLost(f"NVML answers {identity.error} for {gpu.uuid}") if identity.error else None
    return GpuSlot(number, None, identity, fault)


def _absence(uuid: str, inventory: list[GpuIdentity]) -> SourceError:
    if any(each.uuid is None for each in inventory):
        return SourceUnavailable(f"a GPU does not tell its UUID, so {uuid} may be there")
    return DeviceAbsent(f"{uuid} is not on this machine")


def _of_gpu(sources: Sources, profile: NodeProfile, number: int, gpu: ExpectedGpu, scene: _Scene) -> Judged:
    subject, slot = f"gpu{number}", scene.found[number]
    if isinstance(slot.problem, DeviceAbsent) and gpu.uuid:
        gone = Problem(f"recorded {slot.problem}", "absent", gpu.uuid, _key(number, "uuid"))
        return Judged(subject, (gone,))
    try:
        place = scene.known.places.get(number)
        if place is None:
            slot.known()
            raise SourceUnavailable(f"sysfs has no place for the GPU at {address_of(slot)}")
        seen = _told(ways(place, scene.known, number), scene, number in scene.displaced)
        problems = [
            *_slot(number, gpu, scene.by_slot),
            *_numa(place.numa_node, gpu.numa_node, _key(number, "numa_node")),
            *_links(sources, profile, slot, gpu),
            *_peers(sources, profile, slot, gpu, scene),
            *_ways(seen, gpu.paths, _key(number, "paths")),
        ]
    except SourceError as cause:
        return Judged(subject, unknown=cause)
    return Judged(subject, tuple(problems), note=_renumbered(place.address, gpu.pci_bus_id))


def _key(number: int, part: str) -> str:
    return f"topology.expected.gpus.{number}.{part}"


def _slot(number: int, gpu: ExpectedGpu, by_slot: Mapping[int, GpuSlot]) -> Iterator[Problem]:
    """Slots without a pin follow the bus order: after a change of it an engine would get other GPUs."""
    now = by_slot.get(number)
    if gpu.uuid is None or now is None or now.identity is None or now.identity.uuid in (None, gpu.uuid):
        return
    uuid = str(now.identity.uuid)
    text = f"slot {number} is {uuid} now, recorded {gpu.uuid}: pin the slots (gpus.pins)"
    yield Problem(text, uuid, gpu.uuid, _key(number, "uuid"))


def _numa(seen: int, want: int | None, key: str) -> Iterator[Problem]:
    if want is not None and seen != want:
        yield Problem(f"on NUMA node {seen}, recorded {want}", seen, want, key)


def _links(sources: Sources, profile: NodeProfile, slot: GpuSlot, gpu: ExpectedGpu) -> Iterator[Problem]:
    if gpu.links is None:
        return
    seen = active_links(sources, slot, profile)
    if seen != gpu.links:
        yield Problem(
            f"{seen} NVLinks are up, recorded {gpu.links}", seen, gpu.links, _key(slot.number, "links")
        )


def _peers(
    sources: Sources, profile: NodeProfile, slot: GpuSlot, gpu: ExpectedGpu, scene: _Scene
) -> Iterator[Problem]:
    """Who is reached straight over NVLink; a ring where a mesh was shows in the hops."""
    if gpu.peers is None:
        return
    reached = nvlink_peers(sources, slot, profile, scene.known)
    # A GPU that is lost reaches nobody and is told by gpu.lost.
    want = {peer for peer in gpu.peers if peer in scene.known.in_nvml}
    if reached == want:
        return
    lost, new = sorted(want - reached), sorted(reached - want)
    parts = (
        [f"NVLink no longer reaches {_names(lost)}{_hops(sources, profile, slot, lost, scene)}"]
        if lost
        else []
    )
    parts += [f"NVLink reaches {_names(new)}, which was not recorded"] if new else []
    seen, wanted = _names(sorted(reached)) or "none", _names(sorted(want)) or "none"
    yield Problem("; ".join(parts), seen, wanted, _key(slot.number, "peers"))


def _hops(sources: Sources, profile: NodeProfile, slot: GpuSlot, lost: list[int], scene: _Scene) -> str:
    """How far the first of them is now, by way of other GPUs."""
    reach: dict[int, set[int]] = {}
    for number, each in scene.found.items():
        try:
            reach[number] = nvlink_peers(sources, each, profile, scene.known)
        except SourceError:
            return ""  # it only adds to what is told already
    steps = hops(reach, slot.number, lost[0])
    return f" (now {steps} hops to gpu{lost[0]})" if steps else ""


def _names(slots_: list[int]) -> str:
    return ", ".join(f"gpu{slot}" for slot in slots_)


def _told(seen: Mapping[int, PciWay], scene: _Scene, displaced: bool) -> dict[int, PciWay]:
    """The ways that a card answers for: all of one that is displaced itself, else those to GPUs in place."""
    return {slot: way for slot, way in seen.items() if displaced or slot not in scene.displaced}


def _changed(seen: Mapping[int, PciWay], want: Mapping[int, PciWay]) -> list[tuple[int, PciWay, PciWay]]:
    """Slot, way now, way recorded."""
    return [(slot, seen[slot], way) for slot, way in want.items() if slot in seen and seen[slot] != way]


def _ways(seen: Mapping[int, PciWay], want: Mapping[int, PciWay], key: str) -> Iterator[Problem]:
    wrong = _changed(seen, want)
    if not wrong:
        return
    told = ", ".join(f"{way} to gpu{slot} (recorded {was})" for slot, way, was in wrong[:_MOST_WAYS])
    more = f" and {len(wrong) - _MOST_WAYS} more" if len(wrong) > _MOST_WAYS else ""
    slot, way, was = wrong[0]
    yield Problem(f"{told}{more}", way, was, f"{key}.{slot}")


def _of_nic(sources: Sources, profile: NodeProfile, at: int, nic: ExpectedNic, scene: _Scene) -> Judged:
    port = next((port.port for port in profile.fabric.ports if port.device == nic.device), 1)
    subject, key = f"{nic.device}/{port}", f"topology.expected.nics.{at}"
    try:
        place = nic_place(sources, nic.device)
        elsewhere = nic.numa_node is not None and place.numa_node != nic.numa_node
        problems = [
            *_serial(sources, nic, key),
            *_numa(place.numa_node, nic.numa_node, f"{key}.numa_node"),
            *_ways(_told(ways(place, scene.known), scene, elsewhere), nic.paths, f"{key}.paths"),
        ]
    except DeviceAbsent as cause:
        gone = Problem(f"{nic.device} is not there: {cause}", "absent", nic.device, f"{key}.device")
        return Judged(subject, (gone,))
    except SourceError as cause:
        return Judged(subject, unknown=cause)
    notes = (_renumbered(place.address, nic.pci_bus_id), _unread(sources, nic))
    return Judged(subject, tuple(problems), note="; ".join(filter(None, notes)))


def _unread(sources: Sources, nic: ExpectedNic) -> str:
    """A note: the kernel shows a card's serial number to root alone, which nic.serial says too."""
    try:
        if nic.serial is not None:
            nic_serial(sources, nic.device)
    except SourceUnavailable:
        return "its serial number cannot be read here, known by its device name"
    return ""


def _serial(sources: Sources, nic: ExpectedNic, key: str) -> Iterator[Problem]:
    if nic.serial is None:
        return
    try:
        seen = nic_serial(sources, nic.device)
    except SourceUnavailable:
        return
    except DeviceAbsent as cause:  # the card is there, its VPD is not
        raise NotSupported(str(cause)) from cause
    if seen != nic.serial:
        now = device_with_serial(sources, nic.serial)
        where = f"which is {now} now" if now else "which is on no RDMA device"
        text = f"the card {seen} is here, recorded {nic.serial}, {where}"
        yield Problem(text, seen, nic.serial, f"{key}.serial")


def _renumbered(now: str, recorded: str | None) -> str:
    """A note: the bus id is another one, and nothing else."""
    return "" if recorded in (None, now) else f"at {now}, recorded at {recorded}: PCI has numbered anew"
