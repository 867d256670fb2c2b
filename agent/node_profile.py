"""NodeProfile: the one file that says what a node must be; playbooks apply it and checks verify it.

Only the schema is here (engines: engine_profile.py). Layers, file and line of an error and the hash are in
profile_loader.py, contradictions between parts in profile_rules.py, rendering in profile_render.py.
Field names carry their unit; a description is required for every field and is what `profile schema` exports.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from agent.bmc_profile import Bmc, Cooling, RedfishEndpoint
from agent.engine_profile import Backoff, Canary, Engine, EngineGate, Launch, Soak, Warmup
from agent.fabric_profile import Fabric, FabricKind, InfiniBand, NicPair, NicPort, NicSettings, Roce
from agent.group_profile import Group, GroupMember, Pair
from agent.host_profile import HostSettings, Mount, Peer
from agent.launch_parts import Checkpoint, Container, EngineKind, Runtime
from agent.nccl_profile import Nccl
from agent.node_parts import Admission, Enforce, Supervision, Topology
from agent.profile_problem import CrossProblem
from agent.profile_rules import cross_problems
from agent.profile_types import GPU_UUID, Part, PathText, Port, Slot

__all__ = [
    "GPU_UUID",
    "LOADER_CHECKS",
    "Admission",
    "Api",
    "Backoff",
    "Bmc",
    "Canary",
    "CheckOverride",
    "Checkpoint",
    "Container",
    "Cooling",
    "CrossProblem",
    "Enforce",
    "Engine",
    "EngineGate",
    "EngineKind",
    "Fabric",
    "FabricKind",
    "GpuPin",
    "Gpus",
    "Group",
    "GroupMember",
    "HostSettings",
    "InfiniBand",
    "Launch",
    "Mode",
    "Mount",
    "Nccl",
    "NicPair",
    "NicPort",
    "NicSettings",
    "NodeProfile",
    "Nvlink",
    "Pair",
    "Part",
    "Peer",
    "Port",
    "RedfishEndpoint",
    "Roce",
    "Runtime",
    "Slot",
    "Soak",
    "Supervision",
    "Topology",
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


PackageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{1,127}$")]
PackageVersion = Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.+~:-]{0,127}$")]


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
    slowdown_c: int | None = Field(
        None,
        description="Temperature from which a GPU slows down that states neither threshold nor margin, in C",
        ge=60,
        le=150,
    )
    has_power_limit: bool = Field(
        True, description="The GPU tells and takes a power limit; false = not compared (GB10)"
    )
    persistence: bool = Field(
        True,
        description="Driver state must persist with no client (persistence mode on); false = not compared",
    )
    ecc: bool = Field(True, description="ECC must be enabled; false = not compared")
    mig_off: bool = Field(True, description="MIG must be off: engines have whole GPUs; false = not compared")
    packages: dict[PackageName, PackageVersion] = Field(
        default_factory=dict,
        description="Exact version of each package of driver, fabric manager, nvlsm and so on, held as a set",
    )
    vbios: list[str] = Field(
        default_factory=list, description="VBIOS versions that a GPU may have; empty = not compared"
    )
    max_sm_clock_mhz: int | None = Field(
        None, description="Highest SM clock that the GPU must offer in MHz; unset = not compared", gt=0
    )
    pcie_generation: int | None = Field(
        None, description="PCIe generation of the GPU; unset = what the device itself can do", ge=1, le=8
    )
    pcie_width: int | None = Field(
        None, description="PCIe lanes of the GPU; unset = what the device itself can do", ge=1, le=32
    )
    pcie: bool = Field(True, description="PCIe readings are real; false = placeholders, not compared (GB10)")
    unified_memory: bool = Field(
        False, description="GPU and CPU share one memory: NVML has no memory of its own to tell (GB10)"
    )
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
    nvswitches: int | None = Field(
        None, description="NVSwitches that the host must see on PCI; unset = not compared", ge=0
    )
    imex: bool = Field(False, description="The node is part of a multi-node NVLink domain: IMEX must run")
    domains: list[list[Slot]] = Field(
        default_factory=list, description="GPU slots of each NVLink domain; empty = all GPUs are one domain"
    )


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
    shadow: bool = Field(
        False, description="True runs the check and shows its verdict, but lets it gate nothing"
    )
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
    host: HostSettings = Field(default_factory=HostSettings, description="Linux as the work needs it")
    bmc: Bmc = Field(default_factory=Bmc, description="BMC, BIOS, firmware and cooling over Redfish")
    engines: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")], Engine] = Field(
        default_factory=dict, description="Engines by name, each with its own gate"
    )
    pairs: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")], Pair] = Field(
        default_factory=dict, description="Prefill and decode engines that are ready together, by name"
    )
    supervision: Supervision = Field(
        Supervision.AUTO,
        description="systemd: units nodegate-engine@NAME; process: the agent's own; auto: what is set up",
    )
    topology: Topology = Field(
        default_factory=Topology, description="NCCL topology file and expected topology"
    )
    nccl: Nccl = Field(default_factory=Nccl, description="What the measured tests of NCCL must reach")
    admission: Admission = Field(
        default_factory=Admission, description="What must be proven before a gate opens"
    )
    checklists_dir: PathText | None = Field(
        None, description="Folder of the site's own checklists (NAME.yaml), which go before the shipped ones"
    )
    enforce: Enforce = Field(default_factory=Enforce, description="The gate enforced by the kernel")
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
