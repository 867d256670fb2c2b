"""The variables that make an engine one rank of a model over several nodes (pure)."""

from __future__ import annotations

import ipaddress

from agent.launch_parts import EngineKind
from agent.node_profile import Engine


def group_env(engine: Engine) -> dict[str, str]:
    """This rank's own address in the data network, which vLLM would else guess from the default route.

    A member that is named and not numbered is left to vLLM.
    """
    group = engine.group
    if group is None or engine.launch.kind is not EngineKind.VLLM:
        return {}
    mine = group.members[group.rank]
    address = mine.data_address or mine.address
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return {}
    return {"VLLM_HOST_IP": address}
