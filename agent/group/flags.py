"""The flags that make an engine one rank of a model over several nodes (pure)."""

from __future__ import annotations

from agent.launch_parts import EngineKind, FlagValue
from agent.node_profile import Engine


def group_flags(engine: Engine) -> dict[str, FlagValue]:
    """Flags of this node's rank; empty without a group.

    The ranks talk over the data network, so the head is named by its data address.
    """
    group = engine.group
    if group is None:
        return {}
    head = group.members[0]
    address = head.data_address or head.address
    nodes: dict[str, FlagValue] = {"nnodes": len(group.members), "node-rank": group.rank}
    if engine.launch.kind is EngineKind.SGLANG:
        host = f"[{address}]" if ":" in address else address
        return {**nodes, "dist-init-addr": f"{host}:{group.master_port}"}
    flags = {**nodes, "master-addr": address, "master-port": group.master_port}
    return {**flags, "headless": True} if group.rank > 0 else flags
