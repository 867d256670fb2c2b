"""From the profile of a node and one of its engines to the exact argv and environment of its launch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.errors import LaunchError
from agent.group.env import group_env
from agent.launch.arguments import flag_value, has_flag
from agent.launch.container import ContainerNeeds, container_name, podman_argv
from agent.launch.engine_argv import API_KEY, engine_argv, given_arguments
from agent.launch.engine_argv import served_name as served_name
from agent.launch.env_file import read_env_file
from agent.launch.gpu_pins import SlotGpu, gpu_env, slot_gpus
from agent.launch.launch_env import AGENT, LaunchEnvironment, refuse_reserved
from agent.launch.launch_env import MARKER as MARKER
from agent.launch.nccl_env import nccl_env, topology_env
from agent.launch.numa_plan import NumaPlan, binds_workers, numa_plan
from agent.launch.secret_words import secret_values
from agent.launch_parts import EngineKind, Runtime
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A launch, complete and frozen. `env` has no secrets; `secrets` are shown by name only."""

    engine: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    origins: Mapping[str, str]
    inherited: frozenset[str]
    working_dir: str | None
    notes: tuple[str, ...]
    gpu_uuids: tuple[str, ...]
    numa: tuple[int, ...]
    host: str
    port: int
    model_name: str | None
    #: Where the secrets are; a unit's starter reads them there itself.
    env_file: str | None = None
    kind: EngineKind = EngineKind.VLLM
    runtime: Runtime = Runtime.HOST
    #: Name of its container (runtime podman).
    container_name: str | None = None
    #: Seconds after which it is drained and stopped; None = never.
    max_run_s: float | None = None
    #: A rank without an HTTP server of its own (one model over several nodes).
    headless: bool = False
    #: Folder of the weights on this machine; None when it is not known.
    checkpoint: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Names of the variables from env_file, sorted."""
        return tuple(sorted(self.secrets))

    @property
    def api_key(self) -> str | None:
        """The key that the engine asks its clients for, if any."""
        given = flag_value(self.argv, "--api-key")
        return given or self.secrets.get(API_KEY) or self.env.get(API_KEY) or None

    @property
    def hidden(self) -> tuple[str, ...]:
        """Values that must not be shown when the engine prints them."""
        return (*self.secrets.values(), *secret_values(self.argv, self.env))

    def process_env(self) -> dict[str, str]:
        """What the process gets."""
        return {**self.env, **self.secrets}

    def launch_hash(self) -> str:
        """A hash of all that the profile decides.

        Inherited variables are left out: an agent restarted from another shell must not take its own engine
        for a different one.
        """
        decided = {k: v for k, v in self.process_env().items() if k not in self.inherited}
        parts = [list(self.argv), sorted(decided.items()), self.working_dir]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def build_plan(profile: NodeProfile, name: str, sources: Sources, environ: Mapping[str, str]) -> LaunchPlan:
    """The launch of one engine.

    LaunchError when the profile contradicts itself or the node cannot give it.
    """
    engine = profile.engines.get(name)
    if engine is None:
        known = ", ".join(profile.engines) or "none"
        raise LaunchError(f"the profile has no engine {name}; it has: {known}")
    launch = engine.launch
    gpus = slot_gpus(profile, engine, sources.nvml, numa=launch.numa_bind or binds_workers(engine))
    env = launch_environment(profile, name, gpus, environ)
    secrets = read_env_file(Path(launch.env_file)) if launch.env_file else {}
    refuse_reserved(name, secrets)
    numa = numa_plan(name, profile, gpus, sources, env.values)
    inner, notes = engine_argv(name, engine, numa.workers)
    uuids = tuple(gpu.uuid for gpu in gpus.values())
    plan = LaunchPlan(
        engine=name,
        argv=(*numa.prefix, *inner),
        env=env.values,
        origins=env.origins,
        inherited=env.inherited,
        working_dir=launch.working_dir,
        notes=(*env.notes, *numa.notes, *notes),
        gpu_uuids=uuids,
        numa=numa.nodes,
        host=engine.host,
        port=engine.port,
        model_name=served_name(engine),
        kind=launch.kind,
        headless=has_flag(inner, "--headless"),
        env_file=launch.env_file,
        checkpoint=launch.checkpoint.path or _folder(launch.model),
        secrets=secrets,
    )
    return _contained(plan, engine, numa) if launch.runtime is Runtime.PODMAN else plan


def _contained(plan: LaunchPlan, engine: Engine, numa: NumaPlan) -> LaunchPlan:
    """The same launch inside its container."""
    passed = [key for key in (*plan.env, *plan.secrets) if key not in plan.inherited]
    needs = ContainerNeeds(plan.gpu_uuids, passed, numa, _files(plan.env))
    container = engine.launch.container
    return replace(
        plan,
        argv=podman_argv(plan.engine, engine, needs, plan.argv),
        working_dir=None,
        runtime=Runtime.PODMAN,
        container_name=container_name(plan.engine, engine),
        max_run_s=container.max_run_s if container is not None else None,
    )


def launch_environment(
    profile: NodeProfile, name: str, gpus: Mapping[int, SlotGpu], environ: Mapping[str, str]
) -> LaunchEnvironment:
    """What is inherited, follows from GPUs, fabric and topology, or is set by the profile; no secrets."""
    engine = profile.engines[name]
    launch = engine.launch
    env = LaunchEnvironment(name)
    env.add({key: environ[key] for key in launch.inherit_env if key in environ}, AGENT)
    env.add(gpu_env(profile, name, engine, gpus), "gpus")
    if launch.nccl_env and engine.gpus:
        env.add(nccl_env(profile.fabric, engine.gpus, rdma=launch.rdma), "fabric")
    if engine.gpus:
        env.add(topology_env(profile.topology), "topology")
    env.add(group_env(engine), "group")
    env.add(launch.env, "launch.env", note=True)
    return env


def _files(env: Mapping[str, str]) -> list[str]:
    """Files that variables name and a container must have."""
    return [env[key] for key in ("NCCL_TOPO_FILE",) if env.get(key, "").startswith("/")]


def _folder(model: str | None) -> str | None:
    """The model where it is a path and not a name to download."""
    return model if model is not None and model.startswith("/") else None


def engine_api_key(engine: Engine) -> str | None:
    """The API key of an engine that somebody else starts.

    From the arguments, env_file or env of its profile.
    """
    launch = engine.launch
    secrets = read_env_file(Path(launch.env_file)) if launch.env_file else {}
    return (
        flag_value(given_arguments(engine), "--api-key")
        or secrets.get(API_KEY)
        or launch.env.get(API_KEY)
        or None
    )
