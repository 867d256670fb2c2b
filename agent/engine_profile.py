"""The engine part of a node profile: how an engine is started, warmed, watched, restarted and gated."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.group_profile import Group
from agent.host_profile import Peer
from agent.launch_parts import (
    Checkpoint,
    Container,
    EngineEnvironment,
    EngineKind,
    FlagValue,
    PatchedBuild,
    Runtime,
)
from agent.profile_types import Host, Part, PathText, Port, Slot


class Canary(Part):
    """A short real completion that proves that the engine answers."""

    prompt: str = Field("Count: one two three", description="Prompt of the canary", min_length=1)
    max_tokens: int = Field(4, description="Tokens asked for", ge=1, le=64)
    period_s: float = Field(10.0, description="Seconds between canaries while no token moves by itself", gt=0)
    busy_period_s: float = Field(
        60.0,
        description="Seconds between canaries while the engine's own token counters show that it works",
        gt=0,
    )
    deadline_s: float = Field(
        10.0, description="Seconds after which a canary with no token progress has failed", gt=0
    )
    restart_after: int = Field(
        6, description="Dead canaries in a row after which the engine is restarted", ge=1
    )
    expect_text: str | None = Field(
        None, description="Text that the greedy answer must contain; unset = any text"
    )


class Warmup(Part):
    """Requests that must succeed before the gate opens."""

    requests: int = Field(2, description="Completions run one after another", ge=1, le=1000)
    concurrent: int | None = Field(
        None,
        description=(
            "Completions then run at the same time; 0 = none, unset = as many as the engine is started for "
            "(--max-num-seqs, --max-running-requests), at most 256, and 2 where that is not given"
        ),
        ge=0,
        le=4096,
    )
    max_tokens: int = Field(8, description="Tokens asked for in each", ge=1, le=4096)
    long_prompt_tokens: int | None = Field(
        None,
        description=(
            "Tokens of one long prefill; 0 = none, unset = as the engine's maximum length (mode gate: none)"
        ),
        ge=0,
    )
    first_token_s: float | None = Field(
        None, description="Most seconds to the first token after the warm-up; unset = not compared", gt=0
    )
    deadline_s: float = Field(300.0, description="Seconds that the whole warm-up may take", gt=0)


class Soak(Part):
    """Load through the engine before its gate opens, while heat, power and links are seen (mode manage)."""

    duration_s: float = Field(0.0, description="Seconds of load; 0 = no soak", ge=0)
    concurrent: int = Field(8, description="Completions at the same time", ge=1, le=4096)
    prompt_tokens: int = Field(256, description="Tokens of each prompt", ge=1)
    max_tokens: int = Field(64, description="Tokens asked for in each", ge=1, le=4096)
    retry_s: float = Field(
        300.0, description="Seconds after a soak that did not pass until the next one is tried", ge=0
    )


class Launch(Part):
    """How the engine is started; `args` and `env` are taken as they are, after what nodegate adds."""

    kind: EngineKind = Field(EngineKind.VLLM, description="Which engine it is: vllm or sglang")
    preset: str | None = Field(
        None, description="Shipped launch that the engine is based on; what the engine itself sets wins"
    )
    command: list[str] = Field(
        default_factory=lambda: ["vllm", "serve"], description="Program and first arguments", min_length=1
    )
    model: str | None = Field(None, description="Model path or name, the first positional argument")
    served_model_name: str | None = Field(None, description="Name that clients and the canary ask for")
    flags: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")], FlagValue] = Field(
        default_factory=dict,
        description="Flags without dashes; true = --flag, false = --no-flag, a list = several arguments",
    )
    args: list[str] = Field(
        default_factory=list, description="Further arguments after the flags, one list item each"
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment variables added for the engine"
    )
    env_file: PathText | None = Field(
        None, description="File with KEY=VALUE secrets, mode 0600; never shown or logged"
    )
    inherit_env: list[str] = Field(
        default_factory=lambda: ["PATH", "HOME", "LANG", "LD_LIBRARY_PATH"],
        description="Variables passed on from the agent's environment; all others are dropped",
    )
    working_dir: PathText | None = Field(None, description="Directory to start in")
    numa_bind: bool = Field(
        False, description="Bind the engine's memory and CPUs to the NUMA nodes of its GPUs"
    )
    rdma: bool = Field(
        False, description="The plan uses RDMA (several nodes, KV transfer): network faults gate it"
    )
    nccl_env: bool = Field(True, description="Add the NCCL variables that follow from the fabric part")
    patched: PatchedBuild = Field(
        default_factory=PatchedBuild, description="What a patched build has beyond its upstream version"
    )
    environment: EngineEnvironment | None = Field(
        None, description="Python environment with the engine; unset = not made and not compared"
    )
    runtime: Runtime = Field(Runtime.HOST, description="host: on the host itself; podman: in a container")
    container: Container | None = Field(None, description="The container (runtime podman)")
    checkpoint: Checkpoint = Field(default_factory=Checkpoint, description="The weights on disk")


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

    degraded_weight_percent: int = Field(
        50, description="Agent-check weight while degraded, in percent", ge=1, le=100
    )
    drain_grace_s: float = Field(
        10.0, description="Seconds between closing the gate and stopping the engine", ge=0
    )


class Engine(Part):
    """One inference engine on the node, with its own gate."""

    gpus: list[Slot] = Field(description="GPU slots that this engine owns; empty = no GPU (CPU engine)")
    host: Host = Field("127.0.0.1", description="Address at which the engine listens")
    port: Port = Field(description="Port at which the engine listens")
    agent_check_port: Port | None = Field(None, description="Port of the HAProxy agent check of this engine")
    launch: Launch = Field(default_factory=Launch, description="How it is started (mode manage)")
    peers: list[Peer] = Field(
        default_factory=list, description="Ports of other nodes that this engine's ranks must reach"
    )
    start_deadline_s: float = Field(1800.0, description="Seconds from start to healthy HTTP", gt=0)
    stop_deadline_s: float = Field(30.0, description="Seconds from SIGTERM to SIGKILL", ge=0)
    canary: Canary = Field(default_factory=Canary, description="Canary while serving")
    warmup: Warmup = Field(default_factory=Warmup, description="Warm-up before the gate opens")
    soak: Soak = Field(default_factory=Soak, description="Load before the gate opens")
    group: Group | None = Field(None, description="The nodes of a model that spans several")
    backoff: Backoff = Field(default_factory=Backoff, description="Restarts after crashes")
    gate: EngineGate = Field(default_factory=EngineGate, description="Gate settings")

    @property
    def follows(self) -> bool:
        """Whether it is a rank of a group and not its head: it has no HTTP, and its gate never opens."""
        return self.group is not None and self.group.rank > 0
