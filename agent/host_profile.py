"""The host part of a node profile: kernel, memory, time, disks and services that checks verify."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agent.profile_types import Host as HostName
from agent.profile_types import Part, PathText, Port

SysctlKey = Annotated[str, Field(pattern=r"^[a-z0-9_]+([./][A-Za-z0-9_*-]+)+$")]
ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,63}$")]
#: A word of the kernel's command line that a boot loader's shell takes as it is.
KernelWord = Annotated[str, Field(pattern=r"^[^\s\"'`$\\]+$")]
SysctlText = Annotated[str, Field(pattern=r"^[^\r\n]*$")]
UnitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.@\\-]{1,200}\.(service|timer|target|mount|socket)$")]


class Mount(Part):
    """A file system that must be mounted and answer."""

    path: PathText = Field(description="Mount point", pattern=r"^/")
    fs_type: str | None = Field(None, description="Type in /proc/self/mounts; unset = not compared")
    source: str | None = Field(None, description="Device or server:path; unset = not compared")
    read_only: bool | None = Field(None, description="Whether it must be read-only; unset = not compared")
    marker: str | None = Field(
        None, description="File under it that must exist: a fresh mount that is empty has none", min_length=1
    )


class Peer(Part):
    """A TCP port of another machine that must accept connections."""

    host: HostName = Field(description="Address or host name")
    port: Port = Field(description="TCP port")


class HostSettings(Part):
    """Linux as the node's work needs it; what is unset or empty is not compared."""

    kernel_args: list[KernelWord] = Field(
        default_factory=list, description="Words that /proc/cmdline must hold, e.g. iommu=pt"
    )
    kernel_args_absent: list[KernelWord] = Field(
        default_factory=list, description="Words (or keys before `=`) that /proc/cmdline must not hold"
    )
    sysctl: dict[SysctlKey, int | SysctlText] = Field(
        default_factory=dict, description="Kernel settings by key; one that this kernel lacks is a failure"
    )
    engine_limits: dict[str, int | Literal["unlimited"]] = Field(
        default_factory=dict,
        description="Lowest soft limit of the engine's process by its name in /proc/PID/limits",
    )
    hugepages: dict[Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="Number of huge pages that must exist by page size in kB"
    )
    transparent_hugepage: Literal["always", "madvise", "never"] | None = Field(
        None, description="/sys/kernel/mm/transparent_hugepage/enabled"
    )
    cpu_governor: str | None = Field(None, description="Frequency governor of every CPU, e.g. performance")
    swap: bool | None = Field(None, description="false = no swap space may be in use as such")
    numa_nodes: int | None = Field(None, description="Number of NUMA nodes with memory", ge=1)
    memory_gib: float | None = Field(None, description="Least memory of the host in GiB", gt=0)
    modules: list[ModuleName] = Field(
        default_factory=list, description="Kernel modules that must be loaded, e.g. nvidia_uvm"
    )
    modules_absent: list[ModuleName] = Field(
        default_factory=list, description="Kernel modules that must not be loaded, e.g. nouveau"
    )
    services: dict[UnitName, Literal["active", "inactive"]] = Field(
        default_factory=dict, description="State of systemd units, e.g. nvidia-persistenced.service: active"
    )
    time_sync: bool | None = Field(
        None, description="true = the clock must be synchronised; unset = only told; false = not compared"
    )
    disks: list[PathText] = Field(
        default_factory=lambda: ["/", "/var/lib/nodegate"],
        description="Paths whose file systems must have room",
    )
    mounts: list[Mount] = Field(default_factory=list, description="Mounts that must answer, e.g. the weights")
    aspm: Literal["default", "performance", "powersave", "powersupersave"] | None = Field(
        None, description="PCIe power saving policy (/sys/module/pcie_aspm/parameters/policy)"
    )
    acs: Literal["off"] | None = Field(
        None, description="off = no PCIe port above a GPU or NIC may redirect peer-to-peer traffic (ACS)"
    )
    iommu: Literal["off", "pt", "on"] | None = Field(
        None, description="off, pt (passthrough domains only) or on, as found in /sys/kernel/iommu_groups"
    )
