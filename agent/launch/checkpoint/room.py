"""The room that there is: memory of the engine's GPUs, of the host and of its NUMA nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.errors import AgentError, LaunchError, ParseError, SourceError
from agent.launch.gpu_pins import slot_gpus
from agent.launch.numa import numa_nodes
from agent.model import EnginePhase
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources, Tree
from agent.sources.gpu_reading import NvmlGroup

MEMINFO = "proc/meminfo"
NODES = "sys/devices/system/node"
_LINE = re.compile(r"(?:Node \d+ )?(\w+(?:\(\w+\))?):\s+(\d{1,18}) kB")
#: In these phases the engine's own memory is not in use.
_AWAY = frozenset({EnginePhase.ABSENT, EnginePhase.BACKOFF, EnginePhase.CRASHLOOP})


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes by slot and node; `unknown` names what could not be read and why."""

    device_bytes: Mapping[int, int] = field(default_factory=dict)
    unified: bool = False
    host_total_bytes: int | None = None
    host_available_bytes: int | None = None
    #: The engine runs already: what it has moved to the host is no longer available, and that is no fault.
    running: bool = False
    node_of_slot: Mapping[int, int] = field(default_factory=dict)
    node_bytes: Mapping[int, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def read_room(profile: NodeProfile, name: str, sources: Sources) -> Room:
    """Read it. What cannot be read is named, never guessed."""
    engine = profile.engines[name]
    unknown: list[str] = []
    total, available = _host(sources.tree, unknown)
    unified = profile.gpus.unified_memory
    bus_ids: dict[int, str | None] = {}
    devices: dict[int, int] = {}
    uuids: tuple[str, ...] = ()
    try:
        gpus = slot_gpus(profile, engine, sources.nvml)
        uuids = tuple(gpu.uuid for gpu in gpus.values())
        bus_ids = {slot: gpu.pci_bus_id for slot, gpu in gpus.items()}
        if unified:
            devices = dict.fromkeys(gpus, total) if total is not None else {}
        else:
            devices = {slot: _device(sources, gpu.uuid, slot) for slot, gpu in gpus.items()}
    except AgentError as cause:
        unknown.append(f"device memory: {cause}")
    node_of_slot = _nodes_of(profile, engine, bus_ids, sources.tree)
    return Room(
        device_bytes=devices,
        unified=unified,
        host_total_bytes=total,
        host_available_bytes=available,
        running=_runs(sources, name, uuids),
        node_of_slot=node_of_slot,
        node_bytes=_node_bytes(sources.tree, set(node_of_slot.values())),
        unknown=tuple(unknown),
    )


def _device(sources: Sources, uuid: str, slot: int) -> int:
    """Memory of one GPU."""
    total = sources.nvml.read(uuid, NvmlGroup.MEMORY).integer("total_b")
    if not 0 < total < 1 << 50:
        raise ParseError(f"gpu{slot}: NVML says {total} bytes of memory, which no GPU has")
    return total


def _host(tree: Tree, unknown: list[str]) -> tuple[int | None, int | None]:
    """MemTotal and MemAvailable in bytes."""
    try:
        values = _meminfo(tree, MEMINFO)
        total, available = values["MemTotal"], values["MemAvailable"]
    except SourceError as cause:
        unknown.append(f"host memory: {cause}")
        return None, None
    except KeyError as cause:
        unknown.append(f"host memory: /{MEMINFO} has no {cause.args[0]}")
        return None, None
    if not 0 <= available <= total or total == 0:
        unknown.append(f"host memory: /{MEMINFO} reads {available} of {total} bytes available")
        return None, None
    return total, available


def _meminfo(tree: Tree, path: str) -> dict[str, int]:
    """Bytes by name."""
    lines = tree.text(path).splitlines()
    return {match[1]: int(match[2]) << 10 for line in lines if (match := _LINE.match(line.strip()))}


def _nodes_of(
    profile: NodeProfile, engine: Engine, bus_ids: Mapping[int, str | None], tree: Tree
) -> dict[int, int]:
    """NUMA node by slot; a slot whose node is not told is left out, for that refuses no launch."""
    found: dict[int, int] = {}
    for slot in engine.gpus:
        try:
            found[slot] = numa_nodes(profile.gpus, {slot: bus_ids.get(slot)}, tree)[0]
        except LaunchError:
            continue
    return found


def _node_bytes(tree: Tree, nodes: set[int]) -> dict[int, int]:
    """Memory of each NUMA node; one that does not tell is left out."""
    found: dict[int, int] = {}
    for node in sorted(nodes):
        try:
            found[node] = _meminfo(tree, f"{NODES}/node{node}/meminfo")["MemTotal"]
        except (SourceError, KeyError):
            continue
    return found


def _runs(sources: Sources, name: str, uuids: tuple[str, ...]) -> bool:
    """Whether the engine has its memory already: its supervisor says so, or its GPUs are in use."""
    try:
        return sources.engines.observe(name).status.phase not in _AWAY
    except SourceError:
        pass  # no daemon in this process: NVML tells
    try:
        return any(sources.nvml.read(uuid, NvmlGroup.PROCESSES).integers("pids") for uuid in uuids)
    except SourceError:
        return False
