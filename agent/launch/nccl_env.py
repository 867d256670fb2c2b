"""NCCL's environment from the fabric part of the profile (pure).

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html. Left alone on purpose:
NCCL_IB_GID_INDEX, which NCCL chooses by itself and which can shift after a reboot, and NCCL_SOCKET_IFNAME,
about which the data ports say nothing. A variable that the profile's `env` sets itself wins over these.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.errors import LaunchError
from agent.node_profile import Fabric, FabricKind, Roce, Topology

#: NCCL reads no more devices than this (MAX_IB_DEVS).
MAX_HCAS = 32
#: ECN-capable transport, ECT(0), in the two low bits of the traffic class (RFC 3168).
ECT0 = 0b10


def nccl_env(fabric: Fabric, slots: Sequence[int] = (), *, rdma: bool = False) -> dict[str, str]:
    """The variables for this fabric; empty when there is no fabric between nodes.

    An engine whose plan uses RDMA must not fall back to sockets in silence: NCCL_NET=IB makes that a failure.
    Where there are more ports than NCCL reads, an engine gets those of its own GPUs (`slots`).
    """
    ports = fabric.ports
    if fabric.kind is FabricKind.NONE or not ports:
        return {}
    if len(ports) > MAX_HCAS:
        ports = [port for port in ports if port.gpu in slots]
    if len(ports) > MAX_HCAS or not ports:
        raise LaunchError(
            f"fabric.ports has {len(fabric.ports)} ports, {len(ports)} of them of this engine's GPUs, and "
            f"NCCL uses 1 to {MAX_HCAS}; list fewer, and under gpu the slot that each belongs to"
        )
    # Without `=` NCCL matches by prefix: mlx5_1 would take mlx5_10 to mlx5_19 too.
    env = {"NCCL_IB_HCA": "=" + ",".join(f"{port.device}:{port.port}" for port in ports)}
    if rdma:
        env["NCCL_NET"] = "IB"
    if fabric.kind is FabricKind.ROCE:
        env |= _roce_env(fabric.roce)
    return env


def topology_env(topology: Topology) -> dict[str, str]:
    """The topology file of the profile, which admission has compared with the machine (topology.file)."""
    return {} if topology.nccl_file is None else {"NCCL_TOPO_FILE": topology.nccl_file}


def traffic_class(roce: Roce) -> int:
    """The IP traffic class byte: DSCP in the six high bits, and ECT(0) where ECN is on.

    DSCP 26 is 104 without ECN and 106 with it. A switch marks only packets that say they are ECN-capable;
    it drops the others. It must agree with what the port's rdma_cm traffic class is set to.
    """
    return roce.dscp << 2 | (ECT0 if roce.ecn else 0)


def _roce_env(roce: Roce) -> dict[str, str]:
    """What puts NCCL's packets into the lossless priority: the DSCP, or with `trust.

    Pcp` the service level.
    """
    if roce.trust == "dscp":
        return {"NCCL_IB_TC": str(traffic_class(roce))}
    return {"NCCL_IB_TC": str(traffic_class(roce)), "NCCL_IB_SL": str(roce.priority)}
