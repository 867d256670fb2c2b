"""An engine in a container: the argv of `podman run` from launch.container (pure).

The image is named by digest and never pulled, the root filesystem is read-only with tmpfs where programs
write (/tmp, /run, /var/tmp), no capability is kept but those below, and nothing restarts it but nodegate.
Variables are passed by name: their values are in podman's own environment, so that no secret stands in argv.
GPUs are CDI devices by full UUID: the host needs a CDI specification with UUID names
(`nvidia-ctk cdi generate --device-name-strategy=uuid`). /tmp is the home, for caches of compiled kernels; to
keep them over restarts mount a folder writable and point the cache variables at it.

Tried with podman 4.3.1 and runc as root on cgroups v1: every option here is accepted (those of GPUs and of
locked memory only as far as podman's own word that the device is missing or the limit not allowed); limits,
read-only mounts and variables are as asked; an engine (the embedded one) is started, watched and stopped by
the controller; SIGTERM reaches it and its exit code comes back; after SIGKILL of podman or of one process in
the container all of it is ended and begun anew; --replace ends what an earlier run left; --timeout kills.
Not tried: rootless podman, cgroups v2 and `--cgroups=split`, SELinux, real GPUs and RDMA. A unit of systemd
that runs podman needs a drop-in that takes back its hardening (RestrictNamespaces, NoNewPrivileges, User).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent.errors import LaunchError
from agent.launch.launch_env import MARKER
from agent.launch.numa_plan import NumaPlan
from agent.launch_parts import Container, ContainerMount
from agent.node_profile import Engine

#: Variables that podman itself reads: other values of them must not reach it.
_PODMANS_OWN = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_RUNTIME_DIR", "TMPDIR"})
_OWN_PREFIXES = ("CONTAINER_", "CONTAINERS_", "PODMAN_", "REGISTRY_")
_GIB = 1024**3
#: podman's own time limit kills at once. It is there for the case that no agent lives to drain the engine.
_BACKSTOP_S = 600.0
HOME = "/tmp"  # noqa: S108 (a tmpfs of the container's own)


@dataclass(frozen=True, slots=True)
class ContainerNeeds:
    """What the launch brings along besides the profile."""

    gpu_uuids: Sequence[str]
    variables: Iterable[str]
    numa: NumaPlan = field(default_factory=NumaPlan)
    files: Sequence[str] = ()


def container_name(name: str, engine: Engine) -> str:
    """The same at each start, so that a container left by an earlier one is found and replaced."""
    return f"nodegate-{name}" if engine.group is None else f"nodegate-{name}-rank{engine.group.rank}"


def podman_argv(name: str, engine: Engine, needs: ContainerNeeds, inner: Sequence[str]) -> tuple[str, ...]:
    """`podman run` with the engine's own command line inside."""
    container = engine.launch.container
    if container is None:
        raise LaunchError(f"engine {name}: launch.runtime podman needs launch.container with its image")
    _refuse_podmans_own(name, engine)
    return (
        "podman",
        "run",
        "--rm",
        f"--name={container_name(name, engine)}",
        "--replace",
        "--restart=no",
        "--pull=never",
        "--no-healthcheck",
        "--log-driver=passthrough",
        f"--stop-timeout={math.ceil(engine.stop_deadline_s)}",
        *_isolation(container),
        *_limits(engine, container, needs.numa),
        *(f"--device=nvidia.com/gpu={uuid}" for uuid in needs.gpu_uuids),
        *(["--device=/dev/infiniband"] if engine.launch.rdma else []),
        *(f"--device={device}" for device in container.devices),
        *_mounts(engine, container, needs.files),
        "--http-proxy=false",
        f"--env=HOME={HOME}",
        *(f"--env={variable}" for variable in (MARKER, *sorted(set(needs.variables)))),
        *([f"--workdir={engine.launch.working_dir}"] if engine.launch.working_dir else []),
        *container.args,
        f"--entrypoint={inner[0]}",
        container.image,
        *inner[1:],
    )


def _isolation(container: Container) -> list[str]:
    """What it shares with the host: network and, unless it has a size of its own, shared memory."""
    shared = ["--ipc=host"] if container.shm_gib is None else [f"--shm-size={_bytes(container.shm_gib)}"]
    # vLLM binds its workers with set_mempolicy, which podman's seccomp filter keeps for SYS_NICE.
    return [
        "--network=host",
        *shared,
        "--read-only",
        "--cap-drop=all",
        "--cap-add=SYS_NICE",
        "--security-opt=no-new-privileges",
    ]


def _limits(engine: Engine, container: Container, numa: NumaPlan) -> list[str]:
    """CPU, memory, swap, processes, locked memory and time."""
    result = []
    if container.cpus is not None:
        result.append(f"--cpus={container.cpus:g}")
    if container.memory_gib is not None:
        swap_gib = container.memory_swap_gib or container.memory_gib
        result += [f"--memory={_bytes(container.memory_gib)}", f"--memory-swap={_bytes(swap_gib)}"]
    if container.pids is not None:
        result.append(f"--pids-limit={container.pids}")
    if engine.launch.rdma:
        result.append("--ulimit=memlock=-1:-1")
    if numa.cpus:
        result += [f"--cpuset-cpus={numa.cpus}", f"--cpuset-mems={','.join(map(str, numa.nodes))}"]
    if container.max_run_s is not None:
        whole_s = container.max_run_s + engine.gate.drain_grace_s + engine.stop_deadline_s + _BACKSTOP_S
        result.append(f"--timeout={math.ceil(whole_s)}")
    return result


def _bytes(size_gib: float) -> str:
    """A size as podman takes it, exact."""
    return f"{round(size_gib * _GIB)}b"


def _mounts(engine: Engine, container: Container, files: Sequence[str]) -> list[str]:
    """The profile's mounts; the weights and needed files at their own paths unless a mount has them."""
    launch = engine.launch
    mounts = list(container.mounts)
    if launch.model is not None and launch.model.startswith("/") and not _covered(launch.model, mounts):
        source = launch.checkpoint.path or launch.model
        mounts.append(ContainerMount(source=source, target=launch.model, read_only=True))
    for file in files:
        if not _covered(file, mounts):
            mounts.append(ContainerMount(source=file, target=file, read_only=True))
    return [
        f"--mount=type=bind,source={mount.source},target={mount.target}"
        + (",readonly" if mount.read_only else "")
        for mount in mounts
    ]


def _covered(path: str, mounts: Sequence[ContainerMount]) -> bool:
    """Whether a path is in one of the mounts."""
    return any(path == mount.target or path.startswith(f"{mount.target.rstrip('/')}/") for mount in mounts)


def _refuse_podmans_own(name: str, engine: Engine) -> None:
    """A variable that podman reads too would change podman, not only the engine."""
    for key in engine.launch.env:
        if key in _PODMANS_OWN or key.startswith(_OWN_PREFIXES):
            raise LaunchError(
                f"engine {name}: launch.env sets {key}, which podman itself reads; "
                f"write --env={key}=VALUE under launch.container.args"
            )
