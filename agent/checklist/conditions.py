"""When a step is left out: rules that look at the profile alone, by names that checklists use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile


class Condition(StrEnum):
    """What a profile must have for a step to be done."""

    GPUS = "gpus"
    SEVERAL_GPUS = "several-gpus"
    NOT_AIR_COOLED = "not-air-cooled"
    BMC = "bmc"
    FABRIC = "fabric"
    RDMA = "rdma"
    SEVERAL_NODES = "several-nodes"
    ENGINES = "engines"
    MANAGED = "managed"


def _rdma(profile: NodeProfile) -> bool:
    return any(engine.launch.rdma for engine in profile.engines.values())


def _several_nodes(profile: NodeProfile) -> bool:
    return any(engine.group is not None for engine in profile.engines.values())


#: Condition -> whether it holds, and what to say where it does not.
_RULES: Mapping[Condition, tuple[Callable[[NodeProfile], bool], str]] = {
    Condition.GPUS: (lambda p: p.gpus.count > 0, "the profile has no GPUs"),
    Condition.SEVERAL_GPUS: (lambda p: p.gpus.count > 1, "the profile has fewer than two GPUs"),
    Condition.NOT_AIR_COOLED: (
        lambda p: p.bmc.cooling.medium != "air",
        "the node is cooled by air (bmc.cooling.medium)",
    ),
    Condition.BMC: (lambda p: p.bmc.redfish is not None, "the profile names no BMC"),
    Condition.FABRIC: (lambda p: bool(p.fabric.ports), "the profile has no data ports"),
    Condition.RDMA: (_rdma, "no engine of the profile uses RDMA"),
    Condition.SEVERAL_NODES: (_several_nodes, "no engine of the profile spans several nodes"),
    Condition.ENGINES: (lambda p: bool(p.engines), "the profile has no engines"),
    Condition.MANAGED: (lambda p: p.mode == "manage", "nodegate does not run the engines (mode)"),
}


def left_out(profile: NodeProfile, wanted: Sequence[Condition]) -> str | None:
    """Why a step is left out on this node, None when it is to be done."""
    for condition in wanted:
        holds, otherwise = _RULES[condition]
        if not holds(profile):
            return otherwise
    return None
