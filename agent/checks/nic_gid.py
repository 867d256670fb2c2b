"""nic.gid: does each data port have the RoCE v2 GID that RDMA uses, on its own interface?

Kernel: /sys/class/infiniband/DEVICE/ports/N/{gids,gid_attrs/types,gid_attrs/ndevs}/INDEX. Reading the type or
the interface of an index without a GID fails with EINVAL. Indexes can shift when addresses come late.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.checks import advice
from agent.checks.ports import basis_of, judge_ports, netdev_of, not_roce, port_path, subject_of
from agent.checks.registry import Limits, check
from agent.errors import DeviceAbsent, ParseError, SourceError, SourceUnavailable
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

_ADDRESS = advice.person(
    "Give the interface its IP address, look at show_gids, and correct fabric.roce.gid_index if need be.",
)
ROCE_V2 = "RoCE v2"
_GID = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}")
#: Looked through when no index is asked for; the first GIDs of a port are those of its interface.
_FIRST_GIDS = 16


@check(
    "nic.gid",
    title="RoCE v2 GID",
    source="/sys/class/infiniband/DEVICE/ports/N/{gids,gid_attrs/types,gid_attrs/ndevs}/INDEX",
    serving_class=ServingClass.HARD,
    network=True,
    period_s=30.0,
    fail_for_s=60.0,
    triggers=("net.link",),
    skip=not_roce,
    action=_ADDRESS,
)
def nic_gid(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The GID that RDMA uses must be of RoCE v2 and of the port's own interface."""
    index = profile.fabric.roce.gid_index
    if index is None:
        yield from judge_ports(profile, lambda port: _any(sources, profile, port), absent="see nic.present")
    else:
        yield from judge_ports(
            profile, lambda port: _given(sources, profile, port, index), absent="see nic.present"
        )


def _given(sources: Sources, profile: NodeProfile, port: NicPort, index: int) -> Finding:
    path, netdev, subject = port_path(port), netdev_of(port), subject_of(port)
    basis = Basis.profile("fabric.roce.gid_index")
    gid = sources.tree.text(f"{path}/gids/{index}")
    if _GID.fullmatch(gid) is None:
        raise ParseError(f"/{path}/gids/{index} reads {gid[:40]!r}, not a GID")
    if not gid.strip("0:"):
        summary = f"GID {index} is empty: the interface has no such address"
        return Finding(subject, Verdict.FAIL, summary, "empty", ROCE_V2, "", _ADDRESS, basis=basis)
    kind = sources.tree.text(f"{path}/gid_attrs/types/{index}")
    owner = sources.tree.text(f"{path}/gid_attrs/ndevs/{index}")
    if kind != ROCE_V2:
        summary = f"GID {index} is of {kind[:20]}, expected {ROCE_V2}"
        return Finding(subject, Verdict.FAIL, summary, kind[:20], ROCE_V2, "", _ADDRESS, basis=basis)
    if not _is_of(owner, netdev):
        summary = f"GID {index} belongs to {owner[:20]}, expected {netdev}"
        basis = basis_of(profile, port, "netdev")
        return Finding(subject, Verdict.FAIL, summary, owner[:20], netdev, "", _ADDRESS, basis=basis)
    return Finding(subject, Verdict.PASS, f"GID {index} is {ROCE_V2} of {owner}", kind, ROCE_V2, basis=basis)


def _any(sources: Sources, profile: NodeProfile, port: NicPort) -> Finding:
    path, netdev, subject = port_path(port), netdev_of(port), subject_of(port)
    names = sources.tree.names(f"{path}/gid_attrs/types")
    first = sorted(int(name) for name in names if name.isdecimal())[:_FIRST_GIDS]
    refused: list[SourceError] = []
    for index in first:
        try:
            kind = sources.tree.text(f"{path}/gid_attrs/types/{index}")
            if kind == ROCE_V2 and _is_of(sources.tree.text(f"{path}/gid_attrs/ndevs/{index}"), netdev):
                basis = basis_of(profile, port, "netdev")
                summary = f"GID {index} is {ROCE_V2} of {netdev}"
                return Finding(subject, Verdict.PASS, summary, kind, ROCE_V2, basis=basis)
        except (SourceUnavailable, DeviceAbsent) as cause:
            if not str(cause).endswith("Invalid argument"):
                refused.append(cause)  # any other reason than an index without a GID
    if refused:
        raise refused[0]
    summary = f"none of the first {len(first)} GIDs is {ROCE_V2} of {netdev}"
    basis = basis_of(profile, port, "netdev")
    return Finding(subject, Verdict.FAIL, summary, "none", ROCE_V2, "", _ADDRESS, basis=basis)


def _is_of(owner: str, netdev: str) -> bool:
    """Whether a GID's interface is the port's, or a VLAN on it."""
    return owner == netdev or owner.startswith(f"{netdev}.")
