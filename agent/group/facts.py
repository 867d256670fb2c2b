"""What a member knows of its own installation: driver, engine and NCCL versions, checkpoint."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agent.errors import SourceError
from agent.launch_parts import Runtime
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources
from agent.sources.engine_install import checkpoint_identity, versions


@dataclass(frozen=True, slots=True)
class Facts:
    """One reading; `problem` says what could not be read, and then no rank starts."""

    driver: str = ""
    engine_version: str = ""
    nccl_version: str = ""
    checkpoint: str = ""
    problem: str = "versions and checkpoint have not been read yet"


def read_facts(profile: NodeProfile, engine: Engine, sources: Sources) -> Facts:
    """Read everything. Blocks: for a thread."""
    try:
        driver = sources.nvml.system().driver_version if profile.gpus.count else "no GPU"
        engine_version, nccl_version = _versions(engine)
        checkpoint = _checkpoint(engine)
    except SourceError as cause:
        return Facts(problem=str(cause))
    return Facts(driver, engine_version, nccl_version, checkpoint, problem="")


def _versions(engine: Engine) -> tuple[str, str]:
    launch = engine.launch
    if launch.runtime is Runtime.PODMAN and launch.container is not None:
        # The image is named by its digest, so that everything in it is the same.
        return launch.container.image, "that of the image"
    path = launch.env.get("PATH") or os.environ.get("PATH")
    return versions(launch.command, launch.kind.value, path)


def _checkpoint(engine: Engine) -> str:
    """The model's identity; one that is named, not stored here, is the name itself."""
    checkpoint, model = engine.launch.checkpoint, engine.launch.model or ""
    folder = Path(checkpoint.path or model)
    identity = checkpoint_identity(folder, with_index=checkpoint.stage_index is None) if str(folder) else ""
    return identity or f"name {model}"
