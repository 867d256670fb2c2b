"""roce.lossless_drop: is traffic dropped that nothing may drop? Growth of the driver's statistics.

ethtool -S: rx_prioN_discards (of the lossless priority, for want of buffer), rx_discards_phy (of all).
https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.ports import judge_ports, not_roce, subject_of
from agent.checks.ports_counters import described, driver_counts, growth, totals
from agent.checks.registry import Limits, check
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources
from agent.sources.counters import CounterDelta

_LOSSY = advice.person(
    "Compare PFC, ECN and buffers of host and switch: traffic of the lossless class is dropped."
)
_PORT_DROPS = "rx_discards_phy"


class DropLimits(Limits):
    """Tolerances of roce.lossless_drop."""

    window_s: float = Field(60.0, description="Seconds over which growth is judged", ge=1, le=3600)
    fail_per_s: float = Field(
        10.0, description="Lossless drops per second that are a failure; fewer warn", gt=0
    )
    other_drops_per_s: float = Field(
        100.0, description="Drops of all priorities together per second from which on they warn", gt=0
    )


@check(
    "roce.lossless_drop",
    title="Drops of lossless traffic",
    source="ethtool statistics rx_prioN_discards, rx_discards_phy",
    serving_class=ServingClass.SOFT,
    limits=DropLimits,
    network=True,
    period_s=10.0,
    fail_for_s=20.0,
    clear_for_s=30.0,
    needs_interval_s=2.0,
    skip=not_roce,
    action=_LOSSY,
)
def roce_lossless_drop(sources: Sources, profile: NodeProfile, limits: DropLimits) -> Iterator[Finding]:
    """No packet of the lossless priority may be dropped."""
    lossless = f"rx_prio{profile.fabric.roce.priority}_discards"
    yield from judge_ports(
        profile, lambda port: _port(sources, port, lossless, limits), absent="see nic.port"
    )


def _port(sources: Sources, port: NicPort, lossless: str, limits: DropLimits) -> Finding:
    counts = driver_counts(sources, port, (lossless, _PORT_DROPS))
    deltas = growth(sources, "roce.lossless_drop", port, counts.values, limits.window_s)
    return replace(_judge(port, lossless, deltas, limits), measures=totals("roce", counts.values))


def _judge(port: NicPort, lossless: str, deltas: dict[str, CounterDelta], limits: DropLimits) -> Finding:
    subject, lost, others = subject_of(port), deltas[lossless], deltas[_PORT_DROPS]
    rate = round(lost.per_second, 3)
    basis = Basis.limit("fail_per_s")
    if lost.per_second >= limits.fail_per_s:
        summary = f"lossless traffic is dropped: {described({lossless: lost})}"
        return Finding(subject, Verdict.FAIL, summary, rate, limits.fail_per_s, "1/s", _LOSSY, basis=basis)
    if lost.delta > 0:
        summary = f"some lossless traffic is dropped: {described({lossless: lost})}"
        nothing = Basis.profile("fabric.roce.priority")
        return Finding(subject, Verdict.WARN, summary, rate, 0, "1/s", _LOSSY, basis=nothing)
    if others.per_second >= limits.other_drops_per_s:
        summary = f"the port drops traffic of other priorities: {described({_PORT_DROPS: others})}"
        seen, most = round(others.per_second, 3), limits.other_drops_per_s
        basis = Basis.limit("other_drops_per_s")
        return Finding(subject, Verdict.WARN, summary, seen, most, "1/s", _LOSSY, basis=basis)
    return Finding(
        subject, Verdict.PASS, f"no lossless drop in {lost.seconds:.0f} s", 0, 0, "1/s", basis=basis
    )
