"""How an engine is bound to the NUMA nodes of its GPUs: as a whole, and each worker by itself.

As a whole (launch.numa_bind): numactl in front of it, or podman's cpuset. Each worker (the flag numa-bind):
vLLM does it and is told the node of each visible GPU, in their order. A host whose GPUs sit on both sockets
needs the second, and a list that somebody wrote for another machine is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.errors import LaunchError, SourceError
from agent.launch.arguments import flag_values, has_flag
from agent.launch.engine_argv import given_arguments
from agent.launch.gpu_pins import SlotGpu
from agent.launch.numa import find_numactl, numactl_prefix, slot_node
from agent.launch_parts import EngineKind, Runtime
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources, Tree

BIND, NODES = "--numa-bind", "--numa-bind-nodes"


@dataclass(frozen=True, slots=True)
class NumaPlan:
    """`prefix` goes before the command (host), `cpus` and `nodes` to podman, `workers` to the engine."""

    prefix: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    cpus: str = ""
    workers: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def binds_workers(engine: Engine) -> bool:
    """Whether the engine is asked to bind each worker."""
    return engine.launch.kind is EngineKind.VLLM and has_flag(given_arguments(engine), BIND)


def numa_plan(
    name: str,
    profile: NodeProfile,
    gpus: Mapping[int, SlotGpu],
    sources: Sources,
    env: Mapping[str, str],
) -> NumaPlan:
    """The binding that the profile asks for, with the nodes of this machine."""
    engine = profile.engines[name]
    whole, workers = engine.launch.numa_bind, binds_workers(engine)
    if not whole and not workers:
        return NumaPlan()
    if not gpus:
        key = "launch.numa_bind" if whole else "the flag numa-bind"
        raise LaunchError(f"engine {name}: {key} needs GPUs to take the node from; set it to false")
    given = flag_values(given_arguments(engine), NODES)
    if not whole and given:
        return NumaPlan(notes=_given(name, profile, gpus, sources.tree, env, given))
    nodes = {slot: slot_node(profile.gpus, slot, gpu.pci_bus_id, sources.tree) for slot, gpu in gpus.items()}
    each: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    if workers and given:
        notes = _given(name, profile, gpus, sources.tree, env, given)
    elif workers:
        each = tuple(nodes[slot] for slot in _visible(gpus, env))
        notes = (f"each worker is bound to the NUMA node of its GPU ({NODES} {_words(each)})",)
    plan = NumaPlan(nodes=tuple(sorted(set(nodes.values()))), workers=each, notes=notes)
    return _bind_whole(engine, plan, sources, env, each_too=workers) if whole else plan


def _bind_whole(
    engine: Engine, plan: NumaPlan, sources: Sources, env: Mapping[str, str], *, each_too: bool
) -> NumaPlan:
    """The engine as a whole on the nodes of its GPUs."""
    notes = plan.notes
    if len(plan.nodes) > 1 and not each_too:
        listed = " and ".join(map(str, plan.nodes))
        text = f"the GPUs sit on NUMA nodes {listed}: the engine is bound to all of them"
        notes = (*notes, f"{text}; vLLM's --numa-bind binds each worker to the node of its own GPU")
    if engine.launch.runtime is Runtime.PODMAN:
        return NumaPlan((), plan.nodes, _cpus(plan.nodes, sources.tree), plan.workers, notes)
    # A replayed node has no numactl to look for.
    program = "numactl" if sources.simulated else find_numactl(env.get("PATH"))
    return NumaPlan(numactl_prefix(program, plan.nodes), plan.nodes, "", plan.workers, notes)


def _cpus(nodes: Sequence[int], tree: Tree) -> str:
    """The CPUs of the nodes, as podman's --cpuset-cpus takes them."""
    try:
        lists = [tree.text(f"sys/devices/system/node/node{node}/cpulist").strip() for node in nodes]
    except SourceError as cause:
        raise LaunchError(
            f"the CPUs of NUMA nodes {_words(nodes)} cannot be read ({cause}); set launch.numa_bind to false"
        ) from cause
    return ",".join(filter(None, lists))


def _visible(gpus: Mapping[int, SlotGpu], env: Mapping[str, str]) -> list[int]:
    """The slots in the order in which the engine sees them."""
    slot_of = {gpu.uuid: slot for slot, gpu in gpus.items()}
    seen = [slot_of[uuid] for uuid in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid in slot_of]
    return seen or list(gpus)


def _given(
    name: str,
    profile: NodeProfile,
    gpus: Mapping[int, SlotGpu],
    tree: Tree,
    env: Mapping[str, str],
    given: Sequence[str],
) -> tuple[str, ...]:
    """What is to be said of nodes that the profile gives: one a GPU, and the right ones."""
    if len(given) != len(gpus):
        raise LaunchError(
            f"engine {name}: numa-bind-nodes has {len(given)} nodes and the engine {len(gpus)} GPUs; "
            "give one a GPU, or leave it out and nodegate fills it in"
        )
    try:
        real = [slot_node(profile.gpus, slot, gpus[slot].pci_bus_id, tree) for slot in _visible(gpus, env)]
    except LaunchError as cause:
        return (f"numa-bind-nodes is taken as given, for {cause}",)
    if list(given) == [str(node) for node in real]:
        return ()
    said = f"numa-bind-nodes says {' '.join(given)}, and this machine's GPUs sit on {_words(real)}"
    return (f"{said}; remove it and nodegate fills it in",)


def _words(nodes: Sequence[int]) -> str:
    return " ".join(map(str, nodes))
