"""NodeProfile: the one file that says what a node must be; playbooks apply it and checks verify it.

Only the schema is here. Layers, file and line of an error, rendering and the hash are in profile_loader.py.
Field names carry their unit; a description is required for every field and is what `profile schema` exports.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


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


class Part(BaseModel):
    """Base of every part of a profile: unknown keys are refused, values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Port = Annotated[int, Field(ge=1, le=65535)]
Slot = Annotated[int, Field(ge=0, le=63)]
Priority = Annotated[int, Field(ge=0, le=7)]
GPU_UUID = r"^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


class GpuPin(Part):
    """The GPU that must be in one slot."""

    uuid: str = Field(pattern=GPU_UUID, description="Full NVML UUID of the GPU in this slot")
    serial: str | None = Field(None, description="Board serial number, compared when given")
    pci_bus_id: str | None = Field(None, description="PCI address (dddd:bb:dd.f), compared when given")


class Gpus(Part):
    """The GPUs that the node must have."""

    count: int = Field(description="Number of GPUs that the node must have", ge=0, le=64)
    model: str | None = Field(None, description="NVML product name that every GPU must report; unset = not compared")
    pins: dict[Slot, GpuPin] = Field(default_factory=dict, description="GPU pinned to each slot; slot = PCI bus order")
    power_limit_w: float | None = Field(
        None, description="Provisioned power limit of each GPU in W; unset = the device's own default", gt=0, le=5000)
    persistence: bool = Field(True, description="Driver state must persist with no client (persistence mode on)")
    ecc: bool = Field(True, description="ECC must be enabled")
    numa_node: dict[Slot, int] = Field(
        default_factory=dict, description="NUMA node of each GPU slot; unset = read from sysfs")


class Nvlink(Part):
    """NVLink inside the node."""

    links_per_gpu: int = Field(description="Active NVLinks that each GPU must have; 0 = no NVLink", ge=0, le=64)
    speed_mb_s: int | None = Field(None, description="Speed of each link in MB/s as NVML reports it", gt=0)
    fabric: bool = Field(False, description="GPUs sit behind NVSwitches and must be registered with the fabric")
    domains: list[list[Slot]] = Field(default_factory=list, description="GPU slots of each NVLink domain")


class NicPort(Part):
    """One data port of an RDMA NIC."""

    device: str = Field(description="RDMA device under /sys/class/infiniband, e.g. mlx5_0", min_length=1)
    port: int = Field(1, description="Port number of the RDMA device", ge=1, le=254)
    netdev: str | None = Field(None, description="Network interface of the port; needed for roce", min_length=1)
    rate_gbps: float = Field(description="Rate that the port must run at in Gb/s", gt=0)
    mtu_bytes: int | None = Field(None, description="MTU of the interface in bytes; unset = not compared", ge=576)
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


class Canary(Part):
    """A short real completion that proves that the engine answers."""

    prompt: str = Field("Count: one two three", description="Prompt of the canary", min_length=1)
    max_tokens: int = Field(4, description="Tokens asked for", ge=1, le=64)
    period_s: float = Field(10.0, description="Seconds between canaries", gt=0)
    deadline_s: float = Field(10.0, description="Seconds after which a canary with no token progress has failed", gt=0)
    restart_after: int = Field(6, description="Dead canaries in a row after which the engine is restarted", ge=1)
    expect_text: str | None = Field(None, description="Text that the greedy answer must contain; unset = any text")


class Warmup(Part):
    """Requests that must succeed before the gate opens."""

    requests: int = Field(2, description="Completions run one after another", ge=1, le=1000)
    concurrent: int = Field(2, description="Completions then run at the same time; 0 = none", ge=0, le=4096)
    max_tokens: int = Field(8, description="Tokens asked for in each", ge=1, le=4096)
    deadline_s: float = Field(300.0, description="Seconds that the whole warm-up may take", gt=0)


class Launch(Part):
    """How the engine is started; `args` and `env` are taken as they are, after the parts that nodegate adds."""

    command: list[str] = Field(
        default_factory=lambda: ["vllm", "serve"], description="Program and first arguments", min_length=1)
    model: str | None = Field(None, description="Model path or name, the first positional argument")
    served_model_name: str | None = Field(None, description="Name that clients and the canary ask for")
    args: list[str] = Field(default_factory=list, description="Further arguments, one list item each")
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables added for the engine")
    env_file: str | None = Field(None, description="File with KEY=VALUE secrets, mode 0600; never shown or logged")
    inherit_env: list[str] = Field(
        default_factory=lambda: ["PATH", "HOME", "LANG", "LD_LIBRARY_PATH"],
        description="Variables passed on from the agent's environment; all others are dropped")
    working_dir: str | None = Field(None, description="Directory to start in")
    numa_bind: bool = Field(False, description="Bind the engine's memory and CPUs to the NUMA nodes of its GPUs")
    rdma: bool = Field(False, description="The plan uses RDMA (several nodes, KV transfer): network faults gate it")
    nccl_env: bool = Field(True, description="Add the NCCL variables that follow from the fabric part")


class Backoff(Part):
    """Waits between restarts after a crash."""

    first_s: float = Field(2.0, description="Wait before the first restart in seconds", ge=0)
    factor: float = Field(2.0, description="Each further wait is this much longer", ge=1)
    max_s: float = Field(300.0, description="Longest wait in seconds", ge=0)
    jitter: float = Field(0.1, description="Random part of each wait, as a share of it", ge=0, le=1)
    crashes: int = Field(5, description="Crashes within window_s that quarantine the engine", ge=1)
    window_s: float = Field(3600.0, description="Window in which crashes are counted, in seconds", gt=0)


class EngineGate(Part):
    """How one engine's gate behaves."""

    degraded_weight_percent: int = Field(50, description="Agent-check weight while degraded, in percent", ge=1, le=100)
    drain_grace_s: float = Field(10.0, description="Seconds between closing the gate and stopping the engine", ge=0)
    require_checklist: bool = Field(False, description="Admission needs a passed checklist since the last change")


class Engine(Part):
    """One inference engine on the node, with its own gate."""

    gpus: list[Slot] = Field(description="GPU slots that this engine owns; empty = no GPU (CPU engine)")
    host: str = Field("127.0.0.1", description="Address at which the engine listens")
    port: Port = Field(description="Port at which the engine listens")
    agent_check_port: Port | None = Field(None, description="Port of the HAProxy agent check of this engine")
    launch: Launch = Field(default_factory=Launch, description="How it is started (mode manage)")
    start_deadline_s: float = Field(1800.0, description="Seconds from start to healthy HTTP", gt=0)
    stop_deadline_s: float = Field(30.0, description="Seconds from SIGTERM to SIGKILL", ge=0)
    canary: Canary = Field(default_factory=Canary, description="Canary while serving")
    warmup: Warmup = Field(default_factory=Warmup, description="Warm-up before the gate opens")
    backoff: Backoff = Field(default_factory=Backoff, description="Restarts after crashes")
    gate: EngineGate = Field(default_factory=EngineGate, description="Gate settings")


class Api(Part):
    """The read-only HTTP interface."""

    host: str = Field("0.0.0.0", description="Address of the read-only HTTP interface")  # noqa: S104
    port: Port = Field(9470, description="Port of the read-only HTTP interface")
    max_age_s: float = Field(5.0, description="An answer older than this reads as not ready, in seconds", gt=0, le=60)


class CheckOverride(Part):
    """Changes to how one check is run; its tolerances go under `limits`."""

    enabled: bool = Field(True, description="False leaves the check out (shown as SKIP)")
    period_s: float | None = Field(None, description="Seconds between runs", gt=0)
    deadline_s: float | None = Field(None, description="Seconds that one run may take", gt=0)
    serving_class: Literal["immediate", "hard", "soft", "info"] | None = Field(
        None, description="What a confirmed failure does to a serving gate")
    fail_for_s: float | None = Field(None, description="Seconds a failure must last while serving", ge=0)
    clear_for_s: float | None = Field(None, description="Seconds a pass must last to clear a failure", ge=0)
    unknown_for_s: float | None = Field(None, description="Seconds missing evidence is bridged while serving", ge=0)


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
        default_factory=dict, description="Engines by name, each with its own gate")
    limits: dict[str, dict[str, Any]] = Field(default_factory=dict, description="Tolerances by check id")
    checks: dict[str, CheckOverride] = Field(default_factory=dict, description="How checks are run, by check id")
    api: Api = Field(default_factory=Api, description="The read-only HTTP interface")

    @model_validator(mode="after")
    def _consistent(self) -> NodeProfile:
        """Refuse what each part alone cannot see: a slot in two engines, a port used twice, missing netdevs."""
        for problem in cross_problems(self):
            raise ValueError(f"{'.'.join(problem[0])}: {problem[1]}")
        return self


def cross_problems(profile: NodeProfile) -> list[tuple[tuple[str, ...], str]]:
    """Faults between parts as (path, text), in the order of the file."""
    problems: list[tuple[tuple[str, ...], str]] = []
    slots: dict[int, str] = {}
    ports: dict[int, str] = {profile.api.port: "api.port"}
    for name, engine in profile.engines.items():
        for slot in engine.gpus:
            at = ("engines", name, "gpus")
            if slot >= profile.gpus.count:
                problems.append((at, f"GPU slot {slot} does not exist: gpus.count is {profile.gpus.count}"))
            elif slot in slots:
                problems.append((at, f"GPU slot {slot} already belongs to engine {slots[slot]}"))
            slots.setdefault(slot, name)
        for field in ("port", "agent_check_port"):
            value = getattr(engine, field)
            if value is None:
                continue
            if value in ports:
                problems.append((("engines", name, field), f"port {value} is already used by {ports[value]}"))
            ports.setdefault(value, f"engines.{name}.{field}")
    problems += _domain_problems(profile)
    if profile.fabric.kind is FabricKind.ROCE:
        problems += [
            (("fabric", "ports", str(i), "netdev"), "a roce port needs its network interface")
            for i, port in enumerate(profile.fabric.ports)
            if port.netdev is None
        ]
    return problems


def _domain_problems(profile: NodeProfile) -> list[tuple[tuple[str, ...], str]]:
    """A slot outside gpus.count or in two NVLink domains."""
    problems: list[tuple[tuple[str, ...], str]] = []
    seen: set[int] = set()
    for i, domain in enumerate(profile.nvlink.domains):
        for slot in domain:
            at = ("nvlink", "domains", str(i))
            if slot >= profile.gpus.count:
                problems.append((at, f"GPU slot {slot} does not exist: gpus.count is {profile.gpus.count}"))
            elif slot in seen:
                problems.append((at, f"GPU slot {slot} is in two NVLink domains"))
            seen.add(slot)
    return problems
