"""Two topologies side by side: what a file says that the machine does not, and the other way round. Pure.

NCCL takes a file at its word: what it says of a link, a switch or a NUMA node is never read again from the
machine, and a branch whose bus id no GPU or NIC of the process has is dropped without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.topo.machine import gts
from agent.topo.model import GPU_CLASS, Cpu, Gpu, Placed, System, placed
from agent.topo.write_file import mask_text

#: How NCCL knows a PCIe speed, by how the text begins; any other counts as 8 GT/s.
_KNOWN_SPEEDS = (
    *("2.5 GT/s", "5 GT/s", "8 GT/s", "16 GT/s", "32 GT/s"),
    *("5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"),
)
#: A width of 0 is none: NCCL takes it for 16.
_WIDTH_OF_NONE = 16
_HUNDREDTH = 0.01


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs; `subject` is a GPU slot, an RDMA device or a PCI address."""

    subject: str
    text: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.subject}: {self.text}"


def compare(machine: System, file: System) -> list[Difference]:
    """What is wrong in a file for this machine, cards that have moved first; empty = it fits."""
    here = {each.pci.busid: each for each in placed(machine)}
    there = {each.pci.busid: each for each in placed(file)}
    names = {stamp.busid: stamp.subject for stamp in machine.stamps}
    found = [*_origin(machine, file), *_moved(machine, file)]
    found += _missing(here, there, names)
    for busid, mine in here.items():
        if busid in there:
            label = names.get(busid, busid)
            found += [Difference(label, text) for text in _device(mine, there[busid])]
    found += _cpus(machine, file)
    return found


def _origin(machine: System, file: System) -> Iterator[Difference]:
    if file.simulated and not machine.simulated:
        yield Difference("file", "it was written from a captured node, not from a machine")


def _moved(machine: System, file: System) -> Iterator[Difference]:
    """Cards that the file's own comments have at another address: bus ids were given anew, or cards moved."""
    mine = {stamp.uuid or stamp.subject: stamp for stamp in machine.stamps}
    for stamp in file.stamps:
        now = mine.pop(stamp.uuid or stamp.subject, None)
        if now is None:
            yield Difference(
                stamp.subject, f"{stamp.uuid or 'this card'}, at {stamp.busid} in the file, is not here"
            )
        elif now.busid != stamp.busid:
            uuid = f"{stamp.uuid} " if stamp.uuid else ""
            yield Difference(now.subject, f"{uuid}is at {now.busid}, in the file at {stamp.busid}")
    if file.stamps:
        new = [stamp for stamp in mine.values() if stamp.uuid]
        yield from (Difference(stamp.subject, f"the file does not know {stamp.uuid}") for stamp in new)


def _missing(
    here: Mapping[str, Placed], there: Mapping[str, Placed], names: Mapping[str, str]
) -> Iterator[Difference]:
    """Devices that only one side has."""
    for busid, mine in here.items():
        if busid not in there and (busid in names or mine.pci.is_gpu):
            yield Difference(names.get(busid, busid), f"{busid} is not in the file")
    for busid, its in there.items():
        if busid not in here:
            what = "the GPU" if its.pci.is_gpu else "the NIC" if its.pci.is_nic else "the function"
            yield Difference(busid, f"{what} of the file is not on this machine: NCCL drops its branch")


def _device(mine: Placed, its: Placed) -> Iterator[str]:
    """One PCI function on both sides: place, link, class, NVLinks."""
    if mine.above != its.above:
        yield f"behind {_way(mine)} on this machine, behind {_way(its)} in the file"
    elif mine.cpu.numaid != its.cpu.numaid:
        yield f"on NUMA node {mine.cpu.numaid}, in the file on {its.cpu.numaid}"
    yield from _link(mine, its)
    theirs = its.pci.pci_class
    if theirs is not None and not (mine.pci.pci_class or "").startswith(theirs):
        yield f"class {mine.pci.pci_class}, in the file {theirs}"
    known = dict(mine.pci.ids)
    for key, value in its.pci.ids:
        if known.get(key) != value:
            yield f"{key} {known.get(key, 'not told')}, in the file {value}"
    if its.pci.is_gpu and mine.pci.is_gpu:
        yield from _nvlinks(mine, its)


def _way(each: Placed) -> str:
    """`0000:16:00.0 of NUMA node 0`."""
    return f"{' > '.join(each.above) or 'no switch'} of NUMA node {each.cpu.numaid}"


def _link(mine: Placed, its: Placed) -> Iterator[str]:
    """Speed and lanes that the file states: none of it may rest on the file alone."""
    speed, own_speed = its.pci.link_speed, mine.pci.link_speed
    if speed and not speed.startswith(_KNOWN_SPEEDS):
        yield f"NCCL does not know the link_speed {speed!r} and takes 8 GT/s"
    elif speed and not (own_speed and _same_speed(speed, own_speed)):
        yield f"its link can do {own_speed or 'what the kernel does not tell'}, in the file {speed}"
    width, own_width = its.pci.link_width, mine.pci.link_width
    if width is not None and (width or _WIDTH_OF_NONE) != (own_width or (0 if width else _WIDTH_OF_NONE)):
        yield f"its link has {own_width or 'an untold number of'} lanes, in the file {width}"


def _same_speed(one: str, other: str) -> bool:
    return abs(gts(one) - gts(other)) < _HUNDREDTH


def _nvlinks(mine: Placed, its: Placed) -> Iterator[str]:
    """NVLinks by kind of the other end; all switches are one to NCCL. A file may leave them to NCCL."""
    theirs = _counts(its.pci.gpus)
    ours = _counts(mine.pci.gpus)
    if not theirs:
        return
    for kind in sorted({*ours, *theirs}):
        # Links straight to other GPUs are not read from the machine.
        if kind.startswith(GPU_CLASS) and kind not in ours:
            continue
        if ours.get(kind, 0) != theirs.get(kind, 0):
            yield f"{ours.get(kind, 0)} NVLinks are up, in the file {theirs.get(kind, 0)}"


def _counts(gpus: tuple[Gpu, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for nvlink in (nvlink for gpu in gpus for nvlink in gpu.nvlinks):
        kind = nvlink.tclass or ""
        found[kind] = found.get(kind, 0) + nvlink.count
    return found


def _cpus(machine: System, file: System) -> Iterator[Difference]:
    mine = {cpu.numaid: cpu for cpu in machine.cpus}
    for its in file.cpus:
        if its.numaid not in mine:
            continue  # what hangs below it is told already, or is nothing
        ours = mine[its.numaid]
        label = f"NUMA node {its.numaid}"
        yield from (Difference(label, text) for text in _cpu(ours, its))


def _cpu(mine: Cpu, its: Cpu) -> Iterator[str]:
    if its.affinity is not None and its.affinity != mine.affinity:
        own = "not told" if mine.affinity is None else mask_text(mine.affinity)
        yield f"its CPUs are {own}, in the file {mask_text(its.affinity)}"
    known = dict(mine.kind)
    for key, value in its.kind:
        # Of some processors a file says more than the kernel does; where it tells nothing, nothing agrees.
        if known.get(key, value if known else None) != value:
            yield f"{key} {known.get(key, 'not told')}, in the file {value}"
