"""Where a port sends RDMA traffic that names no class itself, as part of roce.pfc_config.

/sys/class/infiniband/DEVICE/tc/PORT/traffic_class (DOCA's driver: `Global tclass=106`) overrides what every
program asks for. /sys/kernel/config/rdma_cm/DEVICE/ports/PORT/default_roce_tos is what connections made with
librdmacm begin with; the folder is there only while cma_roce_tos or a service has made it.
"""

from __future__ import annotations

import re

from agent.checks import advice
from agent.checks.ports import INFINIBAND, subject_of
from agent.errors import DeviceAbsent, ParseError
from agent.launch.nccl_env import traffic_class
from agent.model import Basis, Finding, Verdict
from agent.node_profile import NicPort, Roce
from agent.sources import Sources

_SET_GLOBAL = advice.play(
    "nic", "Write the traffic class of the profile to tc/PORT/traffic_class, or -1 to override nothing."
)
_SET_TOS = advice.play("nic", "Set it with cma_roce_tos -d DEVICE -t CLASS, from a unit that runs at boot.")
_GLOBAL = re.compile(r"Global tclass=(-?\d{1,3})\b")
_BASIS = Basis.profile("fabric.roce.dscp")


def default_class_problem(sources: Sources, port: NicPort, roce: Roce) -> Finding | None:
    """What is wrong with the port's default classes; None when they fit or none is set. Raises ParseError."""
    forced = _forced(sources, port)
    tos = _connection_tos(sources, port)
    want = traffic_class(roce)
    if roce.trust != "dscp":
        return None  # such a port sorts by service level, not by the traffic class
    subject = subject_of(port)
    if forced is not None and forced >> 2 != roce.dscp:
        summary = (
            f"the driver forces traffic class {forced} (DSCP {forced >> 2}) on all RDMA, expected {want}"
        )
        return Finding(subject, Verdict.FAIL, summary, forced, want, "", _SET_GLOBAL, basis=_BASIS)
    if tos is not None and tos >> 2 != roce.dscp:
        summary = f"connections of librdmacm begin with TOS {tos} (DSCP {tos >> 2}), expected {want}"
        return Finding(subject, Verdict.WARN, summary, tos, want, "", _SET_TOS, basis=_BASIS)
    return None


def _forced(sources: Sources, port: NicPort) -> int | None:
    path = f"{INFINIBAND}/{port.device}/tc/{port.port}/traffic_class"
    try:
        text = sources.tree.text(path)
    except DeviceAbsent:
        return None
    if not text:
        return None  # nothing is forced
    match = _GLOBAL.match(text)
    if match is None:
        raise ParseError(f"/{path} reads {text[:40]!r}, not like 'Global tclass=106'")
    value = int(match[1])
    return None if value < 0 else value


def _connection_tos(sources: Sources, port: NicPort) -> int | None:
    path = f"sys/kernel/config/rdma_cm/{port.device}/ports/{port.port}/default_roce_tos"
    try:
        value = sources.tree.integer(path)
    except DeviceAbsent:
        return None
    if not 0 <= value <= 255:
        raise ParseError(f"/{path} reads {value}, not a TOS")
    return value
