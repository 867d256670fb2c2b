"""roce.pfc_config, roce.ecn_config: is the lossless class set up on each port as the profile says?

PFC, trust and DSCP map: DCBNL, IEEE 802.1Qaz (RTM_GETDCB; what `dcb pfc show` and `dcb app show` print).
ECN: /sys/class/net/IFACE/ecn/roce_{np,rp}/enable/PRIORITY, which only the mlx5 driver of DOCA/OFED has.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.ports import judge_ports, not_roce, subject_of
from agent.checks.registry import Limits, check
from agent.errors import ParseError, SourceUnavailable
from agent.model import Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile, Roce
from agent.sources import DcbInfo, Sources

_SET_PFC = advice.play(
    "roce", "Set PFC, trust and DSCP map of the profile with mlnx_qos or dcb, on the host and on the switch."
)
_SET_ECN = advice.play("roce", "Write 1 to the files under ecn/roce_np and ecn/roce_rp of this interface.")
_OWNER = advice.play(
    "roce", "Stop lldpad and set mlnx_qos --dcbx os on the interface, so that the host's settings hold."
)
NO_ECN_FILES = (
    "no such interface (see nic.port), or a driver without ECN files; with the inbox driver verify ECN by"
    " other means and switch roce.ecn_config off in the profile"
)


def _netdev(port: NicPort) -> str:
    if port.netdev is None:
        raise SourceUnavailable("the profile names no interface for this port")
    return port.netdev


@check(
    "roce.pfc_config",
    title="PFC, trust and DSCP map",
    source="RTM_GETDCB: DCB_ATTR_IEEE_PFC, DCB_ATTR_IEEE_APP_TABLE",
    serving_class=ServingClass.SOFT,
    network=True,
    period_s=30.0,
    fail_for_s=30.0,
    triggers=("net.link",),
    skip=not_roce,
    action=_SET_PFC,
)
def roce_pfc_config(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """PFC must be on for the profile's priority alone, and RDMA traffic must be sorted into it."""
    roce = profile.fabric.roce
    yield from judge_ports(
        profile, lambda port: _judge_pfc(port, sources.net.dcb(_netdev(port)), roce), absent="see nic.port"
    )


def _judge_pfc(port: NicPort, dcb: DcbInfo, roce: Roce) -> Finding:
    if len(dcb.pfc_on) != 8:
        raise ParseError(f"DCB of {port.netdev} has {len(dcb.pfc_on)} priorities, not 8")
    subject = subject_of(port)
    lossless = [priority for priority, on in enumerate(dcb.pfc_on) if on]
    seen = ", ".join(map(str, lossless)) or "none"
    if lossless != [roce.priority]:
        summary = f"PFC is on for priority {seen}, expected {roce.priority} alone"
        return Finding(subject, Verdict.FAIL, summary, seen, str(roce.priority), action=_SET_PFC)
    if dcb.trust != roce.trust:
        summary = f"the port sorts packets by {dcb.trust}, expected {roce.trust}"
        return Finding(subject, Verdict.FAIL, summary, dcb.trust, roce.trust, action=_SET_PFC)
    mapped = dcb.dscp_to_priority.get(roce.dscp)
    if roce.trust == "dscp" and mapped != roce.priority:
        where = "is not mapped" if mapped is None else f"maps to priority {mapped}"
        summary = f"DSCP {roce.dscp} {where}, expected priority {roce.priority}"
        return Finding(subject, Verdict.FAIL, summary, mapped, roce.priority, action=_SET_PFC)
    if not dcb.host_managed:
        summary = "set as expected, but the firmware or lldpad manages DCBX: a switch may change it"
        return Finding(subject, Verdict.WARN, summary, seen, str(roce.priority), action=_OWNER)
    sorting = f"DSCP {roce.dscp}" if roce.trust == "dscp" else "PCP"
    summary = f"PFC on priority {roce.priority} alone, {sorting} maps to it"
    return Finding(subject, Verdict.PASS, summary, seen, str(roce.priority))


def _no_ecn(profile: NodeProfile) -> str | None:
    return not_roce(profile) or (None if profile.fabric.roce.ecn else "the profile does not ask for ECN")


@check(
    "roce.ecn_config",
    title="ECN at both ends",
    source="/sys/class/net/IFACE/ecn/{roce_np,roce_rp}/enable/PRIORITY",
    serving_class=ServingClass.SOFT,
    network=True,
    period_s=30.0,
    fail_for_s=30.0,
    triggers=("net.link",),
    skip=_no_ecn,
    action=_SET_ECN,
)
def roce_ecn_config(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """ECN must be on for the lossless priority at the notification point and at the reaction point."""
    priority = profile.fabric.roce.priority
    yield from judge_ports(profile, lambda port: _judge_ecn(sources, port, priority), absent=NO_ECN_FILES)


def _judge_ecn(sources: Sources, port: NicPort, priority: int) -> Finding:
    base = f"sys/class/net/{_netdev(port)}/ecn"
    points = {
        "notification": f"{base}/roce_np/enable/{priority}",
        "reaction": f"{base}/roce_rp/enable/{priority}",
    }
    values = {name: sources.tree.integer(path) for name, path in points.items()}
    for name, value in values.items():
        if value not in (0, 1):
            raise ParseError(f"/{points[name]} reads {value}, not 0 or 1")
    off = [name for name, value in values.items() if value == 0]
    if off:
        summary = f"ECN is off at the {' and '.join(off)} point for priority {priority}"
        return Finding(subject_of(port), Verdict.FAIL, summary, "off", "on", action=_SET_ECN)
    return Finding(
        subject_of(port), Verdict.PASS, f"ECN on for priority {priority} at both points", "on", "on"
    )
