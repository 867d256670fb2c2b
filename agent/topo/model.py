"""A topology as NCCL has it: system > cpu > pci > gpu | nic > net; nvlink below a gpu.

One model for what a file says, what the machine is, and what NCCL dumps. `more` holds attributes that only
NCCL itself fills in (rank, sm, gdr, speed of a net); they take no part in a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Pairs = tuple[tuple[str, str], ...]

#: PCI classes as NCCL sorts devices by them (by prefix).
GPU_CLASS = "0x03"
NIC_CLASS = "0x02"
NVSWITCH_CLASS = "0x068000"
#: What NCCL writes for the other end of an NVLink that a virtual machine does not show.
HIDDEN_TARGET = "fffffff:ff:ff.0"


@dataclass(frozen=True, slots=True)
class NvLink:
    """NVLinks of one GPU to one other end."""

    target: str
    count: int
    tclass: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU below its PCI function."""

    nvlinks: tuple[NvLink, ...] = ()
    more: Pairs = ()


@dataclass(frozen=True, slots=True)
class Net:
    """A network device of NCCL below a NIC."""

    name: str
    more: Pairs = ()


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC below its PCI function, or below a CPU when it is no PCI device."""

    nets: tuple[Net, ...] = ()


@dataclass(frozen=True, slots=True)
class Pci:
    """A PCI function: the upper port of a switch, a GPU or a NIC. None = left to NCCL, which reads sysfs."""

    busid: str
    pci_class: str | None = None
    link_speed: str | None = None
    link_width: int | None = None
    #: vendor, device, subsystem_vendor, subsystem_device.
    ids: Pairs = ()
    pcis: tuple[Pci, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    #: Other switches that this one is linked to (Broadcom).
    pcilinks: tuple[str, ...] = ()
    more: Pairs = ()

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, by class or by what is below it."""
        return bool(self.gpus) or (self.pci_class or "").startswith(GPU_CLASS)

    @property
    def is_nic(self) -> bool:
        """Whether it is a NIC, by class or by what is below it."""
        return bool(self.nics) or (self.pci_class or "").startswith(NIC_CLASS)


@dataclass(frozen=True, slots=True)
class Cpu:
    """A NUMA node; `affinity` is the mask of its CPUs."""

    numaid: int
    affinity: int | None = None
    #: arch, vendor, familyid, modelid.
    kind: Pairs = ()
    pcis: tuple[Pci, ...] = ()
    nics: tuple[Nic, ...] = ()
    more: Pairs = ()


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which card was at a PCI address when the file was written: `gpu3` and its UUID, or an RDMA device.

    It stands in a comment, which NCCL skips: bus ids alone do not show that two GPUs have changed places.
    """

    subject: str
    busid: str
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    """One topology."""

    cpus: tuple[Cpu, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    name: str | None = None
    #: It was written from a captured node, not from a machine.
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A PCI function with its place: the functions above it from the CPU down, and that CPU."""

    pci: Pci
    above: tuple[str, ...]
    cpu: Cpu


def placed(system: System) -> Iterator[Placed]:
    """Every PCI function of a topology, each before those below it."""
    for cpu in system.cpus:
        for pci in cpu.pcis:
            yield from _below(pci, (), cpu)


def _below(pci: Pci, above: tuple[str, ...], cpu: Cpu) -> Iterator[Placed]:
    yield Placed(pci, above, cpu)
    for child in pci.pcis:
        yield from _below(child, (*above, pci.busid), cpu)
