"""Which topology files the profile names, and where each is on this machine. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent.launch_parts import Runtime
from agent.node_profile import Engine, NodeProfile

VARIABLE = "NCCL_TOPO_FILE"


@dataclass(frozen=True, slots=True)
class Named:
    """A file as an engine is given it: `host` is where it is on this machine, None = nowhere."""

    subject: str
    path: str
    host: str | None
    key: str


def named_files(profile: NodeProfile) -> list[Named]:
    """Every topology file that the profile names, the node's own first."""
    node = profile.topology.nccl_file
    found = [Named("node", node, node, "topology.nccl_file")] if node else []
    for name, engine in profile.engines.items():
        own = engine.launch.env.get(VARIABLE)
        path = own or node
        if not path or (not engine.gpus and own is None):
            continue
        host = _on_host(engine, path)
        if own not in (None, node) or host != node:
            key = f"engines.{name}.launch.env.{VARIABLE}" if own else "topology.nccl_file"
            found.append(Named(f"engine:{name}", path, host, key))
    return found


def _on_host(engine: Engine, path: str) -> str | None:
    """A path of the engine on the host: that of the mount that holds it, where it runs in a container."""
    launch = engine.launch
    if launch.runtime is not Runtime.PODMAN or launch.container is None:
        return path
    mounts = sorted(launch.container.mounts, key=lambda mount: len(mount.target), reverse=True)
    for mount in mounts:
        target = mount.target.rstrip("/")
        if path == target or path.startswith(f"{target}/"):
            return mount.source.rstrip("/") + path[len(target) :]
    return None


def tree_path(path: str) -> str:
    """An absolute path as a `Tree` takes it."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))
