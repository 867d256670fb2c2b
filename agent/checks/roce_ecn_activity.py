"""roce.ecn_activity: does congestion control do its work when the fabric marks packets?

Kernel: /sys/class/infiniband/DEVICE/ports/N/hw_counters/{np_ecn_marked_roce_packets,np_cnp_sent,
rp_cnp_handled,rp_cnp_ignored}. Marks that no CNP answers, and CNPs that are ignored, show half an ECN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.ports import judge_ports, not_roce, subject_of
from agent.checks.ports_counters import described, growth, sysfs_counts, totals
from agent.checks.registry import Limits, check
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources
from agent.sources.counters import CounterDelta

_ECN = advice.play(
    "nic", "Turn ECN on at notification and reaction point of every node for the lossless priority."
)
MARKED = "hw_counters/np_ecn_marked_roce_packets"
CNP_SENT = "hw_counters/np_cnp_sent"
HANDLED = "hw_counters/rp_cnp_handled"
IGNORED = "hw_counters/rp_cnp_ignored"


class EcnLimits(Limits):
    """Tolerances of roce.ecn_activity."""

    window_s: float = Field(60.0, description="Seconds over which growth is judged", ge=1, le=3600)
    min_marked: int = Field(
        100, description="Marked packets in the window that must have been answered with a CNP", ge=1
    )
    max_ignored: int = Field(0, description="CNPs in the window that may be ignored", ge=0)


def _no_ecn(profile: NodeProfile) -> str | None:
    return not_roce(profile) or (None if profile.fabric.roce.ecn else "the profile does not ask for ECN")


@check(
    "roce.ecn_activity",
    title="Congestion notifications answered",
    source="/sys/class/infiniband/DEVICE/ports/N/hw_counters/{np_ecn_marked_roce_packets,np_cnp_sent,...}",
    serving_class=ServingClass.INFO,
    limits=EcnLimits,
    network=True,
    period_s=30.0,
    fail_for_s=30.0,
    clear_for_s=60.0,
    needs_interval_s=2.0,
    # A virtual function, or a firmware without cc_query, has none of these counters.
    unknown_blocks_admission=False,
    skip=_no_ecn,
    action=_ECN,
)
def roce_ecn_activity(sources: Sources, profile: NodeProfile, limits: EcnLimits) -> Iterator[Finding]:
    """Marked packets must be answered with CNPs, and no CNP may be ignored."""
    absent = "this function or firmware counts no congestion notifications"
    yield from judge_ports(profile, lambda port: _port(sources, port, limits), absent=absent)


def _port(sources: Sources, port: NicPort, limits: EcnLimits) -> Finding:
    counts = sysfs_counts(sources, port, (MARKED, CNP_SENT, HANDLED, IGNORED))
    deltas = growth(sources, "roce.ecn_activity", port, counts.values, limits.window_s)
    return replace(_judge(port, deltas, limits), measures=totals("roce", counts.values))


def _judge(port: NicPort, deltas: Mapping[str, CounterDelta], limits: EcnLimits) -> Finding:
    subject = subject_of(port)
    marked, sent, ignored = deltas[MARKED], deltas[CNP_SENT], deltas[IGNORED]
    if marked.delta >= limits.min_marked and sent.delta == 0:
        summary = f"packets are marked and no CNP is sent ({described({MARKED: marked})}): ECN is half on"
        basis = Basis.limit("min_marked")
        return Finding(subject, Verdict.WARN, summary, 0, "some", "CNPs", _ECN, basis=basis)
    if ignored.delta > limits.max_ignored:
        summary = f"CNPs are ignored ({described({IGNORED: ignored})}): the reaction point is off"
        most, basis = limits.max_ignored, Basis.limit("max_ignored")
        return Finding(subject, Verdict.WARN, summary, ignored.delta, most, "CNPs", _ECN, basis=basis)
    summary = f"{marked.delta} marked, {sent.delta} CNPs sent, {deltas[HANDLED].delta} handled"
    return Finding(
        subject,
        Verdict.PASS,
        summary,
        ignored.delta,
        limits.max_ignored,
        "CNPs",
        basis=Basis.limit("max_ignored"),
    )
