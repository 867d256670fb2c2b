"""Which GPU is in which slot, and one way to judge every slot: a lost GPU is told once, by gpu.lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.checks.pci import normal_address
from agent.checks.registry import unknown
from agent.errors import DeviceAbsent, DeviceLost, ParseError, SourceError, SourceUnavailable
from agent.model import Action, Finding, Measure, Verdict
from agent.sources.gpu_reading import GpuIdentity, GpuReading, NvmlGroup, NvmlRefusal

if TYPE_CHECKING:
    from agent.node_profile import GpuPin, NodeProfile
    from agent.sources import Sources

#: What a GPU sensor or an offset can be, in degrees C; anything else is not a temperature.
PLAUSIBLE_C = range(-60, 151)
#: How every register of a device that is gone reads, in 32 and in 64 bits.
ALL_ONES = (2**32 - 1, 2**64 - 1)
#: A reading older than this was not read now: a source that serves old values must not look healthy.
MAX_READING_AGE_S = 15.0
_SEE_LOST = Action(hint="Do what gpu.lost says of this GPU; this check needs nothing of its own.")


@dataclass(frozen=True, slots=True)
class GpuSlot:
    """One slot of the profile: the GPU that NVML shows in it, or what kept it from being found."""

    number: int
    pin: GpuPin | None
    identity: GpuIdentity | None = None
    problem: SourceError | None = None

    @property
    def subject(self) -> str:
        """The subject of findings about this slot."""
        return f"gpu{self.number}"

    def known(self) -> tuple[str, GpuIdentity]:
        """The UUID and identity; raises the problem if there is one."""
        if self.problem is not None:
            raise self.problem
        if self.identity is None or self.identity.uuid is None:
            raise ParseError(f"NVML gives no UUID for the GPU in slot {self.number}")
        return self.identity.uuid, self.identity


def no_gpus(profile: NodeProfile) -> str | None:
    """Skip rule: a node without GPUs."""
    return "the profile has no GPUs" if profile.gpus.count == 0 else None


def slots(sources: Sources, profile: NodeProfile) -> list[GpuSlot]:
    """Every slot of the profile; when NVML cannot list its GPUs, every slot carries that problem."""
    empty = [GpuSlot(number, profile.gpus.pins.get(number)) for number in range(profile.gpus.count)]
    try:
        inventory = list(sources.nvml.inventory())
    except SourceError as cause:
        return [replace(slot, problem=cause) for slot in empty]
    found = [_resolve(slot, inventory, profile) for slot in empty]
    doubtful = twice([g.uuid for g in inventory]) | twice([s.identity.uuid for s in found if s.identity])
    return [_refuse_doubtful(slot, doubtful) for slot in found]


def twice(values: Sequence[str | None]) -> set[str]:
    """The values that appear more than once."""
    return {value for value, count in Counter(values).items() if value is not None and count > 1}


def strangers(inventory: Sequence[GpuIdentity], profile: NodeProfile) -> list[GpuIdentity]:
    """GPUs that NVML shows with a UUID that no pin names and that no unpinned slot accounts for."""
    pinned = {pin.uuid for pin in profile.gpus.pins.values()}
    others = [gpu for gpu in inventory if gpu.uuid is not None and gpu.uuid not in pinned]
    unpinned = profile.gpus.count - len(profile.gpus.pins)
    return others if len(others) > unpinned else []


def _resolve(slot: GpuSlot, inventory: list[GpuIdentity], profile: NodeProfile) -> GpuSlot:
    """Find the GPU of one slot: by its pin, else by its place in PCI bus order."""
    if slot.pin is None:
        return _by_place(slot, inventory, profile.gpus.count)
    for gpu in inventory:
        if gpu.uuid == slot.pin.uuid or (gpu.uuid is None and _same_place(gpu, slot.pin)):
            return GpuSlot(slot.number, slot.pin, gpu, _fault(gpu))
    if new := strangers(inventory, profile):
        text = f"pinned {slot.pin.uuid} is not there but unpinned {new[0].uuid} is: see gpu.pins"
        return replace(slot, problem=SourceUnavailable(text))
    # A GPU that hangs may be listed without its UUID: then nothing says that the pinned one is gone.
    silent = [fault for gpu in inventory if gpu.uuid is None and (fault := _fault(gpu))]
    for fault in silent:
        if not isinstance(fault, DeviceLost):
            return replace(slot, problem=fault)
    return replace(slot, problem=DeviceAbsent(f"NVML does not list {slot.pin.uuid}"))


def _by_place(slot: GpuSlot, inventory: list[GpuIdentity], count: int) -> GpuSlot:
    """An unpinned slot: with a GPU missing or too many, its place in bus order says nothing."""
    if len(inventory) != count:
        text = (
            f"NVML lists {len(inventory)} of {count} GPUs and slot {slot.number} is not pinned: see gpu.count"
        )
        return replace(slot, problem=SourceUnavailable(text))
    gpu = inventory[slot.number]
    return GpuSlot(slot.number, slot.pin, gpu, _fault(gpu))


def _same_place(gpu: GpuIdentity, pin: GpuPin) -> bool:
    """Whether a GPU without a UUID sits at the pinned PCI address."""
    if gpu.pci_bus_id is None or pin.pci_bus_id is None:
        return False
    try:
        return normal_address(gpu.pci_bus_id) == normal_address(pin.pci_bus_id)
    except ParseError:
        return False


def _fault(gpu: GpuIdentity) -> SourceError | None:
    """What NVML's answer for the GPU's identity stands for; None when it is fine."""
    if gpu.error is not None:
        return NvmlRefusal(gpu.error).error(f"the GPU at {gpu.pci_bus_id or f'index {gpu.index}'}")
    return ParseError(f"NVML gives no UUID for GPU {gpu.index}") if not gpu.uuid else None


def _refuse_doubtful(slot: GpuSlot, doubtful: set[str]) -> GpuSlot:
    """Two GPUs or two slots with one UUID: neither can be judged."""
    if slot.identity is None or slot.identity.uuid not in doubtful:
        return slot
    return replace(
        slot, problem=ParseError(f"{slot.identity.uuid} appears twice: see gpu.count and the pins")
    )


def read(sources: Sources, slot: GpuSlot, group: NvmlGroup) -> GpuReading:
    """One group of values of the GPU in a slot, proven to be of that GPU and of now."""
    uuid, _ = slot.known()
    reading = sources.nvml.read(uuid, group)
    if reading.uuid != uuid or reading.group is not group:
        raise ParseError(f"asked NVML for {group} of {uuid}, got {reading.group} of {reading.uuid}")
    age_s = sources.clock.mono_s() - reading.mono_s
    if age_s > MAX_READING_AGE_S:
        raise SourceUnavailable(f"the NVML reading of {group} is {age_s:.0f} s old")
    return reading


def measured(now: GpuReading, fields: Mapping[str, str]) -> tuple[Measure, ...]:
    """Numbers for dashboards by metric name; one that cannot be read is left out, never made up."""
    found = []
    for name, field in fields.items():
        with suppress(SourceError):
            found.append(Measure(name, now.number(field)))
    return tuple(found)


def plausible_c(reading: GpuReading, field: str) -> int:
    """A temperature or offset in degrees C. Raises ParseError for a number that no sensor shows."""
    value = reading.integer(field)
    if value not in PLAUSIBLE_C:
        raise ParseError(f"{reading.group}.{field} reads {value} C, which no sensor shows")
    return value


def count_of(reading: GpuReading, field: str) -> int:
    """A count. Raises ParseError for a number that no counter holds."""
    value = reading.integer(field)
    if not 0 <= value < ALL_ONES[-1] or value in ALL_ONES:
        raise ParseError(f"{reading.group}.{field} reads {value}, not a count")
    return value


def mask_of(reading: GpuReading, field: str) -> int:
    """A bit mask of 32 bits. Raises ParseError for anything wider: all ones is how a dead device reads."""
    value = reading.integer(field)
    if not 0 <= value < 0xFFFF_FFFF:
        raise ParseError(f"{reading.group}.{field} reads {value:#x}, not a bit mask")
    return value


def judge_slots(found: Sequence[GpuSlot], judge: Callable[[GpuSlot], Finding]) -> Iterator[Finding]:
    """Judge slot by slot: a source error makes that slot UNKNOWN; failing a lost GPU is left to gpu.lost."""
    for slot in found:
        try:
            yield judge(slot)
        except (DeviceLost, DeviceAbsent) as cause:
            text = f"{cause}: see gpu.lost"
            yield Finding(slot.subject, Verdict.UNKNOWN, text, action=_SEE_LOST)
        except SourceError as cause:
            yield unknown(slot.subject, cause)


def judge_readings(
    sources: Sources,
    profile: NodeProfile,
    group: NvmlGroup,
    judge: Callable[[GpuSlot, GpuReading], Finding],
    *besides: NvmlGroup,
) -> Iterator[Finding]:
    """Judge one group of values of every slot; `besides` are groups that `judge` reads of each slot too."""
    found = slots(sources, profile)
    expect(sources, found, group, *besides)
    return judge_slots(found, lambda slot: judge(slot, read(sources, slot, group)))


def expect(sources: Sources, found: Sequence[GpuSlot], *groups: NvmlGroup) -> None:
    """Let NVML read these groups of all slots in one go, before they are judged one by one."""
    uuids = [slot.identity.uuid for slot in found if slot.problem is None and slot.identity is not None]
    for group in groups:
        sources.nvml.expect([uuid for uuid in uuids if uuid is not None], group)
