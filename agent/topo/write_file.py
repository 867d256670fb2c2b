"""A System as text in NCCL's dialect: what `parse` reads back as the same System."""

from __future__ import annotations

from collections.abc import Iterator

from agent.errors import ConfigError
from agent.topo.dialect import LONGEST_TEXT
from agent.topo.model import Cpu, Gpu, Nic, Pci, Stamp, System
from agent.topo.read_file import SIMULATED, VERSION, parse

Attributes = list[tuple[str, str]]


def render(system: System) -> str:
    """The file's text. Raises ConfigError for a topology that NCCL could not read back."""
    lines = [f"<!-- {SIMULATED} -->"] if system.simulated else []
    lines += [f"<!-- {_stamp(stamp)} -->" for stamp in system.stamps]
    attributes = [("version", VERSION), *([("name", system.name)] if system.name is not None else [])]
    children = [list(_cpu(cpu)) for cpu in system.cpus]
    lines += _element("system", attributes, children)
    text = "\n".join(lines) + "\n"
    parse(text, "the topology to be written")  # NCCL's limits hold for what is written too
    return text


def mask_text(mask: int) -> str:
    """A CPU mask as the kernel writes it: groups of 32 bits in hexadecimal, highest first."""
    groups: list[str] = []
    while mask or not groups:
        groups.append(f"{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(reversed(groups))


def _stamp(stamp: Stamp) -> str:
    uuid = f" {stamp.uuid}" if stamp.uuid else ""
    return f"{stamp.subject}{uuid} at {stamp.busid}"


def _cpu(cpu: Cpu) -> Iterator[str]:
    attributes = [("numaid", str(cpu.numaid))]
    if cpu.affinity is not None:
        attributes.append(("affinity", mask_text(cpu.affinity)))
    children = [*(list(_pci(pci)) for pci in cpu.pcis), *(list(_nic(nic)) for nic in cpu.nics)]
    yield from _element("cpu", [*attributes, *cpu.kind, *cpu.more], children)


def _pci(pci: Pci) -> Iterator[str]:
    attributes: Attributes = [("busid", pci.busid)]
    if pci.pci_class is not None:
        attributes.append(("class", pci.pci_class))
    attributes += pci.ids
    if pci.link_speed is not None:
        attributes.append(("link_speed", pci.link_speed))
    if pci.link_width is not None:
        attributes.append(("link_width", str(pci.link_width)))
    children = [
        *(list(_gpu(gpu)) for gpu in pci.gpus),
        *(list(_nic(nic)) for nic in pci.nics),
        *(list(_element("pcilink", [("target", target)], [])) for target in pci.pcilinks),
        *(list(_pci(child)) for child in pci.pcis),
    ]
    yield from _element("pci", [*attributes, *pci.more], children)


def _gpu(gpu: Gpu) -> Iterator[str]:
    children = []
    for link in gpu.nvlinks:
        attributes = [("target", link.target), ("count", str(link.count))]
        if link.tclass is not None:
            attributes.append(("tclass", link.tclass))
        children.append(list(_element("nvlink", attributes, [])))
    yield from _element("gpu", [*gpu.more], children)


def _nic(nic: Nic) -> Iterator[str]:
    children = [list(_element("net", [("name", net.name), *net.more], [])) for net in nic.nets]
    yield from _element("nic", [], children)


def _element(name: str, attributes: Attributes, children: list[list[str]]) -> Iterator[str]:
    """Lines of one element; what is inside is indented by two spaces."""
    inside = "".join(f' {key}="{_value(key, value)}"' for key, value in attributes)
    if not children:
        yield f"<{name}{inside}/>"
        return
    yield f"<{name}{inside}>"
    for child in children:
        yield from (f"  {line}" for line in child)
    yield f"</{name}>"


def _value(key: str, value: str) -> str:
    """A value that stays one: NCCL knows no way to write a quote inside one."""
    if '"' in value or any(not " " <= char <= "~" for char in value) or len(value) > LONGEST_TEXT:
        problem = f"{key} is {value[:60]!r}"
        raise ConfigError(problem, remedy=f"NCCL takes up to {LONGEST_TEXT} plain characters without quotes")
    return value
