"""engine.numa: does each worker of an engine run on the NUMA node of its GPU?

procfs: Cpus_allowed_list and Mems_allowed_list of /proc/PID/status (cpuset(7)) for the compute processes that
NVML shows on each GPU; sysfs: numa_node of the GPU's PCI device, cpulist of the node.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.engine_processes import gpu_pids, id_list, judge_running, no_engine, status_field
from agent.checks.gpus import GpuSlot, slots
from agent.checks.pci import normal_address
from agent.checks.registry import Limits, check
from agent.errors import ParseError, SourceUnavailable
from agent.model import Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import Engine, NodeProfile
from agent.sources import EngineObservation, Sources

NODES = "sys/devices/system/node"
_BIND = advice.person(
    "Bind every worker to the node of its GPU (vLLM: --numa-bind with --numa-bind-nodes), or all nodes of "
    "its GPUs with launch.numa_bind; then restart the engine at a quiet time."
)


@check(
    "engine.numa",
    title="Workers on their GPUs' NUMA nodes",
    source="/proc/PID/status Cpus_allowed_list, Mems_allowed_list; numa_node of the GPU",
    serving_class=ServingClass.INFO,
    phases=(Phase.SERVING,),
    period_s=60.0,
    deadline_s=10.0,
    fail_for_s=120.0,
    unknown_blocks_admission=False,
    skip=no_engine,
    action=_BIND,
)
def engine_numa(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each worker must be allowed to run, and to have its memory, on the NUMA node of its GPU."""

    def judge(subject: str, name: str, engine: Engine, _seen: EngineObservation) -> Finding:
        del name
        nodes = [node for node in sources.tree.names(NODES) if node.removeprefix("node").isdecimal()]
        if len(nodes) < 2 or not engine.gpus:
            words = "one NUMA node" if engine.gpus else "the engine has no GPU"
            return Finding(subject, Verdict.PASS, f"{words}: nothing to bind", len(nodes), "any")
        return _judge(subject, sources, profile, engine)

    yield from judge_running(sources, profile, judge)


def _judge(subject: str, sources: Sources, profile: NodeProfile, engine: Engine) -> Finding:
    """Compare what each worker may use with where its GPU is."""
    workers = gpu_pids(sources, profile, engine)
    if not all(workers.values()) or not workers:
        raise SourceUnavailable("NVML shows no process on one of its GPUs, so its worker is not known")
    wrong: list[str] = []
    for slot in slots(sources, profile):
        if slot.number not in engine.gpus:
            continue
        node, basis = _node_of(slot, sources, profile)
        cpus = id_list(sources.tree.text(f"{NODES}/node{node}/cpulist"), f"cpulist of node {node}")
        wrong += [
            f"pid {pid} of {slot.subject} (node {node}) may use {seen}"
            for pid in workers[slot.number]
            if (seen := _elsewhere(sources, pid, node, cpus)) is not None
        ]
    if not wrong:
        text = "every worker may use the CPUs and the memory of its GPU's node"
        return Finding(subject, Verdict.PASS, text, 0, 0, "workers elsewhere", basis=basis)
    more = f" and {len(wrong) - 2} more" if len(wrong) > 2 else ""
    summary = f"bound away from the GPU: {'; '.join(wrong[:2])}{more}"
    return Finding(subject, Verdict.WARN, summary, len(wrong), 0, "workers elsewhere", _BIND, basis=basis)


def _elsewhere(sources: Sources, pid: int, node: int, cpus: frozenset[int]) -> str | None:
    """What a process may use instead of a node's CPUs or memory; None when it may use both."""
    path = f"proc/{pid}/status"
    text = sources.tree.text(path)
    listed = status_field(text, "Cpus_allowed_list", f"/{path}")
    allowed = id_list(listed, f"Cpus_allowed_list of {pid}")
    if not allowed:
        raise ParseError(f"/{path} allows no CPU at all")
    if not allowed & cpus:
        return f"CPUs {listed}"
    memory = status_field(text, "Mems_allowed_list", f"/{path}")
    return None if node in id_list(memory, f"Mems_allowed_list of {pid}") else f"memory of nodes {memory}"


def _node_of(slot: GpuSlot, sources: Sources, profile: NodeProfile) -> tuple[int, Basis]:
    """The NUMA node of a GPU: as the profile says, else as sysfs does."""
    if slot.number in profile.gpus.numa_node:
        return profile.gpus.numa_node[slot.number], Basis.profile("gpus.numa_node")
    _, identity = slot.known()
    if identity.pci_bus_id is None:
        raise ParseError(f"NVML gives no PCI address for {slot.subject}")
    address = normal_address(identity.pci_bus_id)
    node = sources.tree.integer(f"sys/bus/pci/devices/{address}/numa_node")
    if node < 0:
        raise SourceUnavailable(f"the firmware names no NUMA node for {address}; set gpus.numa_node")
    return node, Basis.device(f"numa_node of {address}")
