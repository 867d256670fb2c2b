"""roce.cnp: do congestion notification packets leave with the DSCP that the switches give way to?

/sys/class/net/IFACE/ecn/roce_np/cnp_dscp with the driver of DOCA/OFED, else (root only, where debugfs is
mounted) /sys/kernel/debug/mlx5/ADDRESS/cc_params/np_cnp_dscp of the kernel's own driver.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.ports import address_of, judge_ports, netdev_of, not_roce, subject_of
from agent.checks.registry import Limits, check
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

_SET = advice.play("nic", "Write fabric.roce.cnp_dscp to ecn/roce_np/cnp_dscp of this interface.")
_DSCPS = range(64)
_NOWHERE = "neither the driver's ecn files nor its debugfs is there: read it with mlxreg or as root"


def _not_asked(profile: NodeProfile) -> str | None:
    asked = profile.fabric.roce.cnp_dscp is not None
    return not_roce(profile) or (None if asked else "the profile names no DSCP of CNPs")


@check(
    "roce.cnp",
    title="DSCP of congestion notifications",
    source="/sys/class/net/IFACE/ecn/roce_np/cnp_dscp; /sys/kernel/debug/mlx5/ADDRESS/cc_params/np_cnp_dscp",
    serving_class=ServingClass.SOFT,
    network=True,
    period_s=60.0,
    fail_for_s=60.0,
    triggers=("net.link",),
    # The kernel's own driver shows it to root alone.
    unknown_blocks_admission=False,
    skip=_not_asked,
    action=_SET,
)
def roce_cnp(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """CNPs must carry the profile's DSCP, or they queue behind the traffic that they are to slow down."""
    sources = reading_once(sources)
    want = profile.fabric.roce.cnp_dscp
    assert want is not None
    yield from judge_ports(profile, lambda port: _judge(sources, port, want), absent=_NOWHERE)


def _judge(sources: Sources, port: NicPort, want: int) -> Finding:
    seen, where = _cnp_dscp(sources, port)
    if seen not in _DSCPS:
        raise ParseError(f"/{where} reads {seen}, not a DSCP")
    subject, basis = subject_of(port), Basis.profile("fabric.roce.cnp_dscp")
    if seen != want:
        summary = f"CNPs leave with DSCP {seen}, expected {want}"
        return Finding(subject, Verdict.FAIL, summary, seen, want, "DSCP", _SET, basis=basis)
    return Finding(subject, Verdict.PASS, f"CNPs leave with DSCP {seen}", seen, want, "DSCP", basis=basis)


def _cnp_dscp(sources: Sources, port: NicPort) -> tuple[int, str]:
    """The value and the file it is from: DOCA's first, the kernel driver's where that is absent."""
    path = f"sys/class/net/{netdev_of(port)}/ecn/roce_np/cnp_dscp"
    try:
        return sources.tree.integer(path), path
    except DeviceAbsent:
        path = f"{cc_params(address_of(sources, port))}/np_cnp_dscp"
        return sources.tree.integer(path), path


def cc_params(address: str) -> str:
    """Folder of the congestion control parameters that the kernel's own mlx5 driver shows to root."""
    return f"sys/kernel/debug/mlx5/{address}/cc_params"
