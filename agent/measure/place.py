"""Where a worker runs: in the Python environment of an engine, with that engine's environment variables.

On the host the engine's program names its Python; in a container the image's `python3` runs the worker, whose
folder is mounted read-only. Secrets of the engine (launch.env_file) are not given to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import LaunchError, SourceError
from agent.launch.container import ContainerNeeds, podman_argv
from agent.launch.gpu_pins import SlotGpu, slot_gpus
from agent.launch.launch_profile import launch_environment
from agent.launch.lint.installed import NoProgram, NotLintable, program_of
from agent.launch_parts import Runtime
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources
from agent.sources.workload_process import MARK

WORKERS = Path(__file__).parent / "workers"
#: NCCL's information would be mixed with the worker's lines; its warnings are wanted.
_QUIET = {"NCCL_DEBUG": "WARN"}


@dataclass(frozen=True)
class Place:
    """Where and how a worker is started."""

    engine: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str | None


class NoPlace(Exception):
    """No engine's environment can run a worker; the text says why, engine by engine."""


def find_place(
    profile: NodeProfile,
    sources: Sources,
    gpus: Collection[int],
    worker: str,
    order: Mapping[str, Any],
    engine: str | None = None,
) -> Place:
    """The environment of the named engine, else of the first one that has one; those with these GPUs first.

    Raises NoPlace.
    """
    if engine is not None and engine not in profile.engines:
        raise NoPlace(f"the profile has no engine {engine}; it has: {', '.join(profile.engines) or 'none'}")
    names = [engine] if engine is not None else sorted(
        profile.engines, key=lambda name: not set(gpus) <= set(profile.engines[name].gpus)
    )  # fmt: skip
    reasons = []
    for name in names:
        try:
            return _place(profile, sources, sorted(gpus), name, worker, order)
        except (LaunchError, SourceError, NoProgram, NotLintable) as cause:
            reasons.append(f"{name}: {cause}")
    raise NoPlace("; ".join(reasons) or "the profile has no engine whose Python could run it")


def _place(
    profile: NodeProfile,
    sources: Sources,
    gpus: list[int],
    name: str,
    worker: str,
    order: Mapping[str, Any],
) -> Place:
    engine = _with_gpus(profile.engines[name], gpus)
    changed = profile.model_copy(update={"engines": {**profile.engines, name: engine}})
    found = slot_gpus(changed, engine, sources.nvml)
    environment = launch_environment(changed, name, found, os.environ)
    env = {**environment.values, **_QUIET}
    script = [str(WORKERS / worker), json.dumps(order)]
    if engine.launch.runtime is Runtime.PODMAN:
        passed = [key for key in env if key not in environment.inherited]
        argv = _in_container(name, engine, found.values(), passed, env, script)
        return Place(name, argv, env, None)
    program = program_of(engine.launch.command, env, engine.launch.working_dir)
    # -B: nothing is written beside the workers; -u: each line is seen when it is said.
    return Place(name, (str(program.python), "-B", "-u", *script), env, engine.launch.working_dir)


def _with_gpus(engine: Engine, gpus: list[int]) -> Engine:
    """The engine with the GPUs of the test, whatever order its own variables give its own."""
    env = {key: value for key, value in engine.launch.env.items() if key != "CUDA_VISIBLE_DEVICES"}
    launch = engine.launch.model_copy(update={"env": env})
    return engine.model_copy(update={"gpus": gpus, "launch": launch})


def _in_container(
    name: str,
    engine: Engine,
    gpus: Iterable[SlotGpu],
    passed: list[str],
    env: Mapping[str, str],
    script: list[str],
) -> tuple[str, ...]:
    """`podman run` of the engine's image, under a name of its own: the engine's container is left alone."""
    topology = env.get("NCCL_TOPO_FILE", "")
    files = [str(WORKERS), *([topology] if topology.startswith("/") else [])]
    needs = ContainerNeeds([gpu.uuid for gpu in gpus], [*passed, MARK], files=files)
    alone = engine.model_copy(update={"group": None})
    argv = podman_argv(f"{name}-measure", alone, needs, ["python3", "-B", "-u", *script])
    # The worker ends with its standard input.
    return (*argv[:2], "--interactive", *argv[2:])
