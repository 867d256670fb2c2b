"""What NCCL writes of a CPU: kind from /proc/cpuinfo, mask of a NUMA node from sysfs (proc(5))."""

from __future__ import annotations

from agent.errors import DeviceAbsent, ParseError
from agent.sources import Sources
from agent.topo.model import Pairs

CPUINFO = "proc/cpuinfo"
NODES = "sys/devices/system/node"
#: More than any machine has; a list beyond it is garbage, and a mask of it would fill memory.
MOST_CPUS = 8192
#: NCCL adds CPUID's extended family shifted by 4, where the kernel just adds it (family 25 is 0xAF there).
_EXTENDED_FROM = 0xF


def cpu_kind(sources: Sources) -> Pairs:
    """arch, vendor, familyid and modelid as NCCL finds them; empty where the kernel does not tell.

    NCCL then asks the processor itself, so that nothing is lost by leaving them out. Raises SourceError
    for a file that is there and cannot be read.
    """
    try:
        return _kind(sources.tree.text(CPUINFO))
    except DeviceAbsent:
        return ()


def _kind(text: str) -> Pairs:
    block = text.partition("\n\n")[0]
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.split("\n"))
    }
    if "CPU implementer" in fields:
        return (("arch", "arm64"),)
    vendor, family, model = (fields.get(key, "") for key in ("vendor_id", "cpu family", "model"))
    if not vendor or not family.isdecimal() or not model.isdecimal():
        return ()
    extended = max(0, int(family) - _EXTENDED_FROM)
    shown = int(family) - extended + (extended << 4)
    return (("arch", "x86_64"), ("vendor", vendor), ("familyid", str(shown)), ("modelid", model))


def affinity(sources: Sources, numa_node: int) -> int | None:
    """The CPUs of a NUMA node as a mask; None where the firmware names no node, as NCCL has it then.

    Raises ParseError for a list that cannot be read.
    """
    if numa_node < 0:
        return None
    path = f"{NODES}/node{numa_node}/cpulist"
    try:
        text = sources.tree.text(path)
    except DeviceAbsent:
        return None
    return mask_of(text, path)


def mask_of(text: str, path: str) -> int:
    """`0-3,8` as the mask 0x10f. Raises ParseError."""
    mask = 0
    for part in text.split(",") if text else []:
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ParseError(f"/{path} reads {text[:40]!r}, not a list of CPUs")
        low, high = int(first), int(last or first)
        if not low <= high < MOST_CPUS:
            raise ParseError(f"/{path} reads {text[:40]!r}, not a list of CPUs")
        mask |= ((1 << high - low + 1) - 1) << low
    return mask
