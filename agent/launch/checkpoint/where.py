"""Where an engine's weights are on this host, as far as the profile alone tells (pure)."""

from __future__ import annotations

from agent.engine_profile import Launch
from agent.launch_parts import Runtime


def weights_folder(launch: Launch) -> str | None:
    """The folder: launch.checkpoint.path, else the model where it is an absolute path.

    None for a name that the engine looks up by itself. A path in a container is followed through its mounts.
    """
    if launch.checkpoint.path is not None:
        return launch.checkpoint.path
    model = launch.model
    if model is None or not model.startswith("/"):
        return None
    if launch.runtime is Runtime.PODMAN and launch.container is not None:
        return _on_host(model, [(mount.target, mount.source) for mount in launch.container.mounts])
    return model


def _on_host(path: str, mounts: list[tuple[str, str]]) -> str:
    """The path outside the container by the innermost mount; without one it is mounted at its own path."""
    for target, source in sorted(mounts, key=lambda mount: -len(mount[0])):
        inside = target.rstrip("/")
        if path == inside or path.startswith(f"{inside}/"):
            return source.rstrip("/") + path[len(inside) :]
    return path
