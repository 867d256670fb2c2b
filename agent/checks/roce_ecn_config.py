"""roce.ecn_config: is ECN on for the lossless priority, at notification and reaction point?

/sys/class/net/IFACE/ecn/roce_{np,rp}/enable/PRIORITY, which only the mlx5 driver of DOCA/OFED has. The driver
of the kernel itself shows parameters (debugfs mlx5/ADDRESS/cc_params) but not whether ECN is on: that is in
the card's configuration (mlxconfig: ROCE_CC_PRIO_MASK_P1), which nothing in sysfs tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.ports import address_of, judge_ports, netdev_of, not_roce, subject_of
from agent.checks.registry import Limits, check
from agent.checks.roce_cnp import cc_params
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, ParseError, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

_SET_ECN = advice.play("nic", "Write 1 to the files under ecn/roce_np and ecn/roce_rp of this interface.")
_NO_FILES = (
    "no such interface (see nic.port), or the inbox driver: verify with mlxconfig -d ADDRESS q"
    " ROCE_CC_PRIO_MASK_P1"
)


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
    # The kernel's own driver does not tell it; half an ECN shows in roce.ecn_activity.
    unknown_blocks_admission=False,
    skip=_no_ecn,
    action=_SET_ECN,
    if_unreadable=(
        "With the kernel's own driver verify it with mlxconfig -d ADDRESS q ROCE_CC_PRIO_MASK_P1, then write"
        " `checks: {roce.ecn_config: {enabled: false}}` into the profile."
    ),
)
def roce_ecn_config(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """ECN must be on for the lossless priority at the notification point and at the reaction point."""
    sources = reading_once(sources)
    priority = profile.fabric.roce.priority
    yield from judge_ports(profile, lambda port: _judge(sources, port, priority), absent=_NO_FILES)


def _judge(sources: Sources, port: NicPort, priority: int) -> Finding:
    base = f"sys/class/net/{netdev_of(port)}/ecn"
    points = {
        "notification": f"{base}/roce_np/enable/{priority}",
        "reaction": f"{base}/roce_rp/enable/{priority}",
    }
    try:
        values = {name: sources.tree.integer(path) for name, path in points.items()}
    except DeviceAbsent as cause:
        raise DeviceAbsent(f"{cause}{_inbox(sources, port)}") from cause
    for name, value in values.items():
        if value not in (0, 1):
            raise ParseError(f"/{points[name]} reads {value}, not 0 or 1")
    off = [name for name, value in values.items() if value == 0]
    subject, basis = subject_of(port), Basis.profile("fabric.roce.ecn")
    if off:
        summary = f"ECN is off at the {' and '.join(off)} point for priority {priority}"
        return Finding(subject, Verdict.FAIL, summary, "off", "on", action=_SET_ECN, basis=basis)
    return Finding(
        subject, Verdict.PASS, f"ECN on for priority {priority} at both points", "on", "on", basis=basis
    )


def _inbox(sources: Sources, port: NicPort) -> str:
    """Whether it is the kernel's own driver for sure, for the hint."""
    try:
        inbox = sources.tree.exists(cc_params(address_of(sources, port)))
    except SourceError:
        return ""  # only a hint: the finding is UNKNOWN with or without it
    return " (the kernel's own driver shows cc_params, which do not say it)" if inbox else ""
