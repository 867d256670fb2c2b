"""Parts of a node profile about nodegate's own work: supervision, topology file, enforced gate."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from agent.profile_types import GPU_UUID, Network, Part, PathText, Slot

#: A way between two PCI devices, nearest first, as nvidia-smi topo names it.
PciWay = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]


class Supervision(StrEnum):
    """Who runs the engines' processes for the agent."""

    AUTO = "auto"
    SYSTEMD = "systemd"
    PROCESS = "process"


class ExpectedGpu(Part):
    """Where the GPU of one slot must be, and what it must reach."""

    uuid: str | None = Field(
        None, pattern=GPU_UUID, description="GPU that is meant, wherever its bus id is; unset = by slot"
    )
    pci_bus_id: str | None = Field(
        None, description="PCI address when it was recorded; told, not compared: a reboot may change it"
    )
    numa_node: int | None = Field(
        None, description="NUMA node, -1 = the firmware names none; unset = not compared", ge=-1, le=1023
    )
    links: int | None = Field(None, description="NVLinks that are up; unset = not compared", ge=0, le=64)
    peers: list[Slot] | None = Field(
        None, description="Slots that it reaches over NVLink without another GPU between; unset = any"
    )
    paths: dict[Slot, PciWay] = Field(
        default_factory=dict, description="PCIe way to other slots; slots left out are not compared"
    )


class ExpectedNic(Part):
    """Where one RDMA card must be."""

    device: str = Field(description="RDMA device under /sys/class/infiniband", min_length=1)
    serial: str | None = Field(
        None, description="Serial number of the card that is meant (VPD); unset = whichever card it is"
    )
    pci_bus_id: str | None = Field(
        None, description="PCI address when it was recorded; told, not compared: a reboot may change it"
    )
    numa_node: int | None = Field(
        None, description="NUMA node, -1 = the firmware names none; unset = not compared", ge=-1, le=1023
    )
    paths: dict[Slot, PciWay] = Field(
        default_factory=dict, description="PCIe way to GPU slots; slots left out are not compared"
    )


class ExpectedTopology(Part):
    """The topology as an operator has found it right, once; `nodegate topo record` prints it."""

    gpus: dict[Slot, ExpectedGpu] = Field(default_factory=dict, description="GPUs by slot")
    nics: list[ExpectedNic] = Field(default_factory=list, description="RDMA cards")


class Topology(Part):
    """The NCCL topology file and what the node's topology must be."""

    nccl_file: PathText | None = Field(
        None, description="NCCL topology file that engines are given (NCCL_TOPO_FILE); unset = none"
    )
    expected: ExpectedTopology = Field(
        default_factory=ExpectedTopology,
        description="What the machine is compared with; empty = not recorded, not compared",
    )


class Enforce(Part):
    """The enforced gate: the kernel resets new outside connections to an engine whose gate is closed.

    All of the engine's port is meant, its /metrics too: whoever scrapes it from outside belongs in allow.
    """

    enabled: bool = Field(
        False, description="Engines' ports are open to others only while their gate is open"
    )
    timeout_s: float = Field(
        10.0, description="Seconds after which an unrenewed permission ends by itself", gt=1, le=3600
    )
    period_s: float = Field(0.5, description="Seconds between looks at the published answer", ge=0.05, le=60)
    allow: list[Network] = Field(
        default_factory=list,
        description="Addresses and networks that always get through, such as the host that scrapes metrics",
    )


class Admission(Part):
    """What must have been proven before any gate opens, beside the checks."""

    require: list[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]] = Field(
        default_factory=list,
        description="Checklists that must have passed since the last change of hardware, e.g. [burn-in]",
    )
