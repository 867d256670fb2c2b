"""Parts of an engine's launch in a node profile: container, checkpoint, a patched build's own flags."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from agent.profile_types import Part, PathText

#: A flag's value: true `--flag`, false `--no-flag`, a list one argument each.
FlagValue = bool | int | float | str | list[int | float | str]


class EngineKind(StrEnum):
    """Which program serves: it decides flags, health and metric names."""

    VLLM = "vllm"
    SGLANG = "sglang"


class Runtime(StrEnum):
    """Where the engine's processes run."""

    HOST = "host"
    PODMAN = "podman"


class PatchedBuild(Part):
    """What a patched engine has beyond its upstream version; lint takes these as known."""

    flags: list[str] = Field(default_factory=list, description="Flags that only the patched build has")
    env: list[str] = Field(
        default_factory=list, description="Environment variables that only the patched build reads"
    )


class ContainerMount(Part):
    """A path of the host inside the container."""

    source: PathText = Field(description="Absolute path on the host")
    target: PathText = Field(description="Absolute path in the container")
    read_only: bool = Field(True, description="The container cannot write to it")


class Container(Part):
    """How podman runs the engine; `launch.command` is run inside the image."""

    image: str = Field(
        description="Image by digest: name@sha256: and 64 hex digits",
        pattern=r"^[^\s@]+@sha256:[0-9a-f]{64}$",
    )
    mounts: list[ContainerMount] = Field(
        default_factory=list, description="Paths of the host in the container"
    )
    devices: list[str] = Field(
        default_factory=list, description="Devices besides the GPUs, as podman's --device takes them"
    )
    cpus: float | None = Field(None, description="CPUs that it may use; unset = all", gt=0)
    memory_gib: float | None = Field(None, description="Memory limit in GiB; unset = none", gt=0)
    memory_swap_gib: float | None = Field(
        None, description="Memory and swap together in GiB; unset = as memory_gib, so no swap", gt=0
    )
    pids: int | None = Field(None, description="Most processes and threads; unset = podman's own", gt=0)
    shm_gib: float | None = Field(None, description="Size of /dev/shm in GiB; unset = the host's", gt=0)
    max_run_s: float | None = Field(
        None,
        description="Seconds after which the engine is drained, stopped and begun anew; unset = none",
        gt=0,
    )
    args: list[str] = Field(default_factory=list, description="Further arguments of podman run")


class EngineEnvironment(Part):
    """The Python environment that the engine runs from (runtime host), as the role engine makes it."""

    path: PathText = Field(description="Folder of the environment, e.g. /opt/vllm", pattern=r"^/.*[^/]$")
    packages: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")], str] = Field(
        description="Version of each package that must be in it, e.g. vllm: 0.32.0", min_length=1
    )


class Checkpoint(Part):
    """The weights on disk, as they must be before the engine is started."""

    path: PathText | None = Field(
        None, description="Folder of the checkpoint; unset = launch.model where that is a folder"
    )
    shards: int | None = Field(
        None, description="Number of safetensors files; unset = as the index says", ge=1
    )
    total_bytes: int | None = Field(
        None, description="Sum of the safetensors files in bytes; unset = as the index says", ge=1
    )
    checksums: PathText | None = Field(
        None, description="File in sha256sum's format; its sums are checked in the background"
    )
    stage_index: PathText | None = Field(
        None, description="Read-only index of the shards of this pipeline stage; made and checked by nodegate"
    )
    host_reserve_gib: float = Field(
        16.0, description="Host memory in GiB that offloaded weights must leave free", ge=0
    )
