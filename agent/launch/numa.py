"""NUMA nodes of an engine's GPUs and the numactl prefix that binds the engine to them.

Binding is to all nodes where its GPUs sit: an engine on both sockets bound to one would send half of its host
traffic over the link between them. Binding each worker to its own GPU's node is the engine's job (vLLM:
--numa-bind).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from agent.errors import LaunchError, SourceError
from agent.node_profile import Gpus
from agent.sources import Tree


def numa_nodes(gpus: Gpus, slot_bus_ids: Mapping[int, str | None], tree: Tree) -> tuple[int, ...]:
    """The nodes of these slots, each once, sorted: from the profile, else from sysfs by PCI address."""
    return tuple(sorted({slot_node(gpus, slot, bus_id, tree) for slot, bus_id in slot_bus_ids.items()}))


def slot_node(gpus: Gpus, slot: int, bus_id: str | None, tree: Tree) -> int:
    """The node of one slot."""
    if slot in gpus.numa_node:
        return gpus.numa_node[slot]
    remedy = f"set gpus.numa_node.{slot} in the profile or launch.numa_bind and the flag numa-bind to false"
    if bus_id is None:
        raise LaunchError(f"gpu{slot}: no PCI address is known, so neither is its NUMA node; {remedy}")
    try:
        node = tree.integer(f"sys/bus/pci/devices/{bus_id}/numa_node")
    except SourceError as cause:
        raise LaunchError(
            f"gpu{slot}: the NUMA node of {bus_id} cannot be read ({cause}); {remedy}"
        ) from cause
    if node < 0:
        raise LaunchError(f"gpu{slot}: the firmware names no NUMA node for {bus_id}; {remedy}")
    return node


def find_numactl(path: str | None) -> str:
    """Where numactl is in the engine's PATH.

    The same by way of /bin and of /usr/bin: an agent restarted with another PATH must still know its engine.
    """
    program = shutil.which("numactl", path=path)
    if program is None:
        raise LaunchError(
            "launch.numa_bind needs numactl, which is not in the engine's PATH; "
            "install the package numactl or set launch.numa_bind to false"
        )
    return str(Path(program).parent.resolve() / "numactl")


def numactl_prefix(program: str, nodes: tuple[int, ...]) -> tuple[str, ...]:
    """The argv prefix that binds CPUs and memory to these nodes."""
    listed = ",".join(map(str, nodes))
    return (program, f"--cpunodebind={listed}", f"--membind={listed}")
