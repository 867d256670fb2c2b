"""NodeProfile: the one file that says what a node must be; playbooks apply it and checks verify it.

Only the schema is here (engines: engine_profile.py). Layers, file and line of an error and the hash are in
profile_loader.py, contradictions between parts in profile_rules.py, rendering in profile_render.py.
Field names carry their unit; a description is required for every field and is what `profile schema` exports.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from agent.engine_profile import Backoff, Canary, Engine, EngineGate, Launch, Warmup
from agent.profile_rules import CrossProblem, cross_problems
from agent.profile_types import GPU_UUID, Part, Port, Priority, Slot

__all__ = [
    "GPU_UUID",
    "LOADER_CHECKS",
    "Api",
    "Backoff",
    "Canary",
    "CheckOverride",
    "CrossProblem",
    "Engine",
    "EngineGate",
    "Fabric",
    "FabricKind",
    "GpuPin",
    "Gpus",
    "Launch",
    "Mode",
    "NicPort",
    "NodeProfile",
    "Nvlink",
    "Part",
    "Port",
    "Priority",
    "Roce",
    "Slot",
    "Warmup",
    "cross_problems",
]

#: Validation context key: the caller runs cross_problems() itself.
LOADER_CHECKS = "loader_checks"


class Mode(StrEnum):
    """How far nodegate goes on this node."""

    OBSERVE = "observe"
    GATE = "gate"
    MANAGE = "manage"


class FabricKind(StrEnum):
    """The network between nodes."""

    ROCE = "roce"
    IB = "ib"
    NONE = "none"


class GpuPin(Part):
    """The GPU that must be in one slot."""

    uuid: str = Field(pattern=GPU_UUID, description="Full NVML UUID of the GPU in this slot")
    serial: str | None = Field(None, description="Board serial number, compared when given")
    pci_bus_id: str | None = Field(None, description="PCI address (dddd:bb:dd.f), compared when given")


class Gpus(Part):
    """The GPUs that the node must have."""

    count: int = Field(description="Number of GPUs that the node must have", ge=0, le=64)
    model: str | None = Field(
        None, description="NVML product name that every GPU must report; unset = not compared"
    )
    pins: dict[Slot, GpuPin] = Field(
        default_factory=dict, description="GPU pinned to each slot; slot = PCI bus order"
    )
    power_limit_w: float | None = Field(
        None,
        description="Provisioned power limit of each GPU in W; unset = the device's own default",
        gt=0,
        le=5000,
    )
    persistence: bool = Field(
        True,
        description="Driver state must persist with no client (persistence mode on); false = not compared",
    )
    ecc: bool = Field(True, description="ECC must be enabled; false = not compared")
    numa_node: dict[Slot, Annotated[int, Field(ge=0, le=1023)]] = Field(
        default_factory=dict, description="NUMA node of each GPU slot; unset = read from sysfs"
    )


class Nvlink(Part):
    """NVLink inside the node."""

    links_per_gpu: int = Field(
        description="Active NVLinks that each GPU must have; 0 = no NVLink", ge=0, le=64
    )
    speed_mb_s: int | None = Field(None, description="Speed of each link in MB/s as NVML reports it", gt=0)
    fabric: bool = Field(
        False, description="GPUs sit behind NVSwitches and must be registered with the fabric"
    )
    domains: list[list[Slot]] = Field(
        default_factory=list, description="GPU slots of each NVLink domain; empty = all GPUs are one domain"
    )


class NicPort(Part):
    """One data port of an RDMA NIC."""

    device: str = Field(description="RDMA device under /sys/class/infiniband, e.g. mlx5_0", min_length=1)
    port: int = Field(1, description="Port number of the RDMA device", ge=1, le=254)
    netdev: str | None = Field(
        None, description="Network interface of the port; needed for roce", min_length=1
    )
    rate_gbps: float = Field(description="Rate that the port must run at in Gb/s", gt=0)
    mtu_bytes: int | None = Field(
        None, description="MTU of the interface in bytes; unset = not compared", ge=576
    )
    pci_bus_id: str | None = Field(None, description="PCI address of the function, compared when given")
    gpu: Slot | None = Field(None, description="GPU slot nearest to this port; unset = none in particular")


class Roce(Part):
    """Lossless Ethernet settings; every port has the same."""

    priority: Priority = Field(3, description="The one lossless priority (PFC on for it, off for all others)")
    dscp: int = Field(26, description="DSCP of RDMA traffic, mapped to the lossless priority", ge=0, le=63)
    trust: Literal["dscp", "pcp"] = Field("dscp", description="What the port sorts arriving packets by")
    ecn: bool = Field(True, description="ECN must be on at notification and reaction point for the priority")


class Fabric(Part):
    """The network between nodes."""

    kind: FabricKind = Field(description="roce, ib or none")
    ports: list[NicPort] = Field(default_factory=list, description="The data ports; others are ignored")
    roce: Roce = Field(default_factory=Roce, description="Lossless Ethernet settings, used when kind is roce")


class Api(Part):
    """The read-only HTTP interface."""

    host: str = Field("0.0.0.0", description="Address of the read-only HTTP interface")  # noqa: S104
    port: Port = Field(9470, description="Port of the read-only HTTP interface")
    max_age_s: float = Field(
        5.0, description="An answer older than this reads as not ready, in seconds", gt=0, le=60
    )


class CheckOverride(Part):
    """Changes to how one check is run; its tolerances go under `limits`."""

    enabled: bool = Field(True, description="False leaves the check out (shown as SKIP)")
    period_s: float | None = Field(None, description="Seconds between runs", gt=0)
    deadline_s: float | None = Field(None, description="Seconds that one run may take", gt=0)
    serving_class: Literal["immediate", "hard", "soft", "info"] | None = Field(
        None, description="What a confirmed failure does to a serving gate"
    )
    fail_for_s: float | None = Field(None, description="Seconds a failure must last while serving", ge=0)
    clear_for_s: float | None = Field(None, description="Seconds a pass must last to clear a failure", ge=0)
    unknown_for_s: float | None = Field(
        None, description="Seconds missing evidence is bridged while serving", ge=0
    )


class NodeProfile(Part):
    """What a node must be, what runs on it and how it is gated."""

    schema_version: Literal[1] = Field(1, description="Version of this format")
    node: str = Field("", description="Name of the node; empty = the host name")
    platform: str = Field("generic-8gpu", description="Platform layer: b300, h200, h20, gb10 or generic-8gpu")
    mode: Mode = Field(Mode.OBSERVE, description="observe: check only; gate: also gate; manage: also launch")
    driver_version: str | None = Field(None, description="NVIDIA driver version; unset = not compared")
    gpus: Gpus = Field(description="The GPUs")
    nvlink: Nvlink = Field(description="NVLink inside the node")
    fabric: Fabric = Field(description="The network between nodes")
    engines: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")], Engine] = Field(
        default_factory=dict, description="Engines by name, each with its own gate"
    )
    limits: dict[str, dict[str, Any]] = Field(default_factory=dict, description="Tolerances by check id")
    checks: dict[str, CheckOverride] = Field(
        default_factory=dict, description="How checks are run, by check id"
    )
    api: Api = Field(default_factory=Api, description="The read-only HTTP interface")

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> NodeProfile:
        """Refuse what each part alone cannot see; the loader does it itself, to show files and lines."""
        if isinstance(info.context, dict) and info.context.get(LOADER_CHECKS):
            return self
        problems = cross_problems(self)
        if problems:
            raise ValueError(" | ".join(str(problem) for problem in problems))
        return self
