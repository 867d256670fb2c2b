"""roce.pfc_config: is the lossless class set up on each port as the profile says?

PFC, trust and DSCP map: DCBNL, IEEE 802.1Qaz (RTM_GETDCB), which DOCA's mlnx_qos and iproute2's dcb both set,
with either driver. Global pause: ETHTOOL_GPAUSEPARAM. Where RDMA's packets go by default, with the
paths of each driver, is in roce_traffic_class.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.ports import judge_ports, netdev_of, not_roce, subject_of
from agent.checks.registry import Limits, check
from agent.checks.roce_traffic_class import default_class_problem
from agent.errors import ParseError
from agent.model import Action, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile, Roce
from agent.sources import DcbInfo, Sources

_SET_PFC = advice.play(
    "nic", "Set PFC, trust and DSCP map of the profile with mlnx_qos or dcb, on the host and on the switch."
)
_OWNER = advice.play(
    "nic", "Stop lldpad and set mlnx_qos --dcbx os on the interface, so that the host's settings hold."
)
_PAUSE_OFF = advice.play(
    "nic", "Turn global pause off with ethtool -A on this interface and on its switch port: PFC replaces it."
)


@check(
    "roce.pfc_config",
    title="PFC, trust and DSCP map",
    source="RTM_GETDCB: DCB_ATTR_IEEE_PFC, DCB_ATTR_IEEE_APP_TABLE; ETHTOOL_GPAUSEPARAM; default_roce_tos",
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
    yield from judge_ports(profile, lambda port: _judge(sources, port, roce), absent="see nic.port")


def _judge(sources: Sources, port: NicPort, roce: Roce) -> Finding:
    # Everything is read before anything is judged: a port with a part that cannot be read is not set up.
    netdev = netdev_of(port)
    dcb = sources.net.dcb(netdev)
    pause = sources.net.pause(netdev)
    by_default = default_class_problem(sources, port, roce)
    problem = _pfc_problem(port, dcb, roce)
    if problem is not None:
        return problem
    if pause.rx or pause.tx:
        sides = " and ".join(side for side, on in (("rx", pause.rx), ("tx", pause.tx)) if on)
        summary = f"global pause is on ({sides}): it stops every priority, also those that PFC leaves alone"
        rule = Basis.standard("PFC or global pause, never both (802.1Qbb)")
        return _failed(port, summary, sides, "off", rule, _PAUSE_OFF)
    if by_default is not None:
        return by_default
    lossless, basis = str(roce.priority), Basis.profile("fabric.roce.priority")
    if not dcb.host_managed:
        summary = "set as expected, but the firmware or lldpad manages DCBX: a switch may change it"
        owner = Basis.standard("the host manages DCBX")
        return Finding(
            subject_of(port), Verdict.WARN, summary, "firmware or lldpad", "host", "", _OWNER, basis=owner
        )
    sorting = f"DSCP {roce.dscp}" if roce.trust == "dscp" else "PCP"
    summary = f"PFC on priority {roce.priority} alone, {sorting} maps to it"
    return Finding(subject_of(port), Verdict.PASS, summary, lossless, lossless, basis=basis)


def _pfc_problem(port: NicPort, dcb: DcbInfo, roce: Roce) -> Finding | None:
    if len(dcb.pfc_on) != 8:
        raise ParseError(f"DCB of {port.netdev} has {len(dcb.pfc_on)} priorities, not 8")
    lossless = [priority for priority, on in enumerate(dcb.pfc_on) if on]
    seen = ", ".join(map(str, lossless)) or "none"
    if lossless != [roce.priority]:
        summary = f"PFC is on for priority {seen}, expected {roce.priority} alone"
        return _failed(port, summary, seen, str(roce.priority), Basis.profile("fabric.roce.priority"))
    if dcb.trust != roce.trust:
        summary = f"the port sorts packets by {dcb.trust}, expected {roce.trust}"
        return _failed(port, summary, dcb.trust, roce.trust, Basis.profile("fabric.roce.trust"))
    mapped = dcb.dscp_to_priority.get(roce.dscp)
    if roce.trust == "dscp" and mapped != roce.priority:
        where = "is not mapped" if mapped is None else f"maps to priority {mapped}"
        summary = f"DSCP {roce.dscp} {where}, expected priority {roce.priority}"
        return _failed(port, summary, mapped, roce.priority, Basis.profile("fabric.roce.dscp"))
    return None


def _failed(
    port: NicPort, summary: str, seen: str | int | None, want: str | int, basis: Basis,
    action: Action = _SET_PFC,
) -> Finding:  # fmt: skip
    return Finding(subject_of(port), Verdict.FAIL, summary, seen, want, action=action, basis=basis)
