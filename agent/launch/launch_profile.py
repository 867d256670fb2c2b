"""From the profile of a node and one of its engines to the exact argv and environment of its launch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import LaunchError
from agent.launch.arguments import flag_value, flag_values, has_flag
from agent.launch.engine_argv import API_KEY, engine_arguments, engine_argv
from agent.launch.engine_argv import served_name as served_name
from agent.launch.env_file import read_env_file
from agent.launch.gpu_pins import gpu_env, slot_gpus
from agent.launch.nccl_env import nccl_env, topology_env
from agent.launch.numa import find_numactl, numa_nodes, numactl_prefix
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources

#: Marks every process of an engine; its value names engine, state directory and launch.
MARKER = "NODEGATE_ENGINE"
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


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
        keys = (*flag_values(self.argv, "--api-key"), self.env.get(API_KEY, ""))
        return (*self.secrets.values(), *(key for key in keys if key))

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


class _Environment:
    """The environment while it is put together: later values win, and an override is noted."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.values: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.notes: list[str] = []

    def add(self, values: Mapping[str, str], origin: str, *, note: bool = False) -> None:
        """Set variables; with `note` say what they replace."""
        for name, value in values.items():
            where = f"engine {self.engine}: {origin}"
            if not _NAME.match(name) or "\0" in value:
                raise LaunchError(f"{where}: {name!r} is not a usable environment variable")
            if name == MARKER:
                raise LaunchError(f"{where}: {MARKER} is set by nodegate itself; remove it")
            if note and self.values.get(name, value) != value:
                self.notes.append(f"{name} from {origin} replaces the one from {self.origins[name]}")
            self.values[name] = value
            self.origins[name] = origin


def build_plan(profile: NodeProfile, name: str, sources: Sources, environ: Mapping[str, str]) -> LaunchPlan:
    """The launch of one engine.

    LaunchError when the profile contradicts itself or the node cannot give it.
    """
    engine = profile.engines.get(name)
    if engine is None:
        known = ", ".join(profile.engines) or "none"
        raise LaunchError(f"the profile has no engine {name}; it has: {known}")
    launch = engine.launch
    gpus = slot_gpus(profile, engine, sources.nvml)
    env = _Environment(name)
    inherited = {key: environ[key] for key in launch.inherit_env if key in environ}
    env.add(inherited, "the agent's environment")
    env.add(gpu_env(profile, name, engine, gpus), "gpus")
    if launch.nccl_env and engine.gpus:
        env.add(nccl_env(profile.fabric), "fabric")
    if engine.gpus:
        env.add(topology_env(profile.topology), "topology")
    env.add(launch.env, "launch.env", note=True)
    secrets = read_env_file(Path(launch.env_file)) if launch.env_file else {}
    _refuse_reserved(name, secrets)
    prefix, nodes = _numa(profile, engine, {s: g.pci_bus_id for s, g in gpus.items()}, sources, env)
    argv, notes = engine_argv(name, engine)
    return LaunchPlan(
        engine=name,
        argv=(*prefix, *argv),
        env=env.values,
        origins=env.origins,
        inherited=frozenset(
            key for key, origin in env.origins.items() if origin == "the agent's environment"
        ),
        working_dir=launch.working_dir,
        notes=(*env.notes, *notes),
        gpu_uuids=tuple(gpu.uuid for gpu in gpus.values()),
        numa=nodes,
        host=engine.host,
        port=engine.port,
        model_name=served_name(engine),
        env_file=launch.env_file,
        secrets=secrets,
    )


def engine_api_key(engine: Engine) -> str | None:
    """The API key of an engine that somebody else starts.

    From the arguments, env_file or env of its profile.
    """
    launch = engine.launch
    secrets = read_env_file(Path(launch.env_file)) if launch.env_file else {}
    return (
        flag_value(engine_arguments(engine), "--api-key")
        or secrets.get(API_KEY)
        or launch.env.get(API_KEY)
        or None
    )


def _refuse_reserved(name: str, secrets: Mapping[str, str]) -> None:
    """Secrets must not move the engine to other GPUs or hide its marker, for nothing would show it."""
    for key in secrets:
        if key in (MARKER, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            raise LaunchError(
                f"engine {name}: launch.env_file sets {key}, which is not a secret; remove it there"
            )


def _numa(
    profile: NodeProfile, engine: Engine, bus_ids: dict[int, str | None], sources: Sources, env: _Environment
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The numactl prefix and its nodes; both empty without numa_bind."""
    if not engine.launch.numa_bind:
        return (), ()
    if not engine.gpus:
        raise LaunchError(
            f"engine {env.engine}: launch.numa_bind needs GPUs to take the node from; set it to false"
        )
    nodes = numa_nodes(profile.gpus, bus_ids, sources.tree)
    if len(nodes) > 1 and not has_flag(engine_arguments(engine), "--numa-bind"):
        listed = " and ".join(map(str, nodes))
        env.notes.append(
            f"the GPUs sit on NUMA nodes {listed}: the engine is bound to all of them; "
            "vLLM's --numa-bind binds each worker to the node of its own GPU"
        )
    # A replayed node has no numactl to look for.
    program = "numactl" if sources.simulated else find_numactl(env.values.get("PATH"))
    return numactl_prefix(program, nodes), nodes
