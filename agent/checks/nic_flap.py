"""nic.flap: how often did a data port's link go down in the last hours?

Kernel: /sys/class/infiniband/DEVICE/ports/N/counters/link_downed and the interface's carrier_down_count
(RTM_GETLINK, IFLA_CARRIER_DOWN_COUNT). One flap, as at bring-up, is told and closes nothing; what has been
counted leaves the window by itself, so nobody has to clear anything. A link that stays down is nic.port's.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.ports import judge_ports, no_ports, subject_of
from agent.checks.ports_counters import Counts, full, growth, sysfs_counts
from agent.checks.registry import Limits, check
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources
from agent.sources.counters import CounterDelta

_LINK = advice.reseat("Reseat or replace cable and transceiver of this link, then try another switch port.")
DOWNED, CARRIER = "counters/link_downed", "carrier_down_count"


class FlapLimits(Limits):
    """Tolerances of nic.flap."""

    window_s: float = Field(10_800.0, description="Seconds over which flaps are counted", ge=60, le=86_400)
    max_flaps: int = Field(3, description="Flaps in the window; more are a failure", ge=0)
    hard_flaps: int = Field(
        10,
        description="Flaps in the window that close the gate of an RDMA engine: no switch restarts so often",
        ge=1,
    )
    warn_flaps: int = Field(2, description="Flaps in the window from which on it warns", ge=1)


@check(
    "nic.flap",
    title="Link flaps",
    source="/sys/class/infiniband/DEVICE/ports/N/counters/link_downed; IFLA_CARRIER_DOWN_COUNT",
    # The link is up again, and a switch that restarts flaps those of a whole row: that must not close them.
    serving_class=ServingClass.SOFT,
    limits=FlapLimits,
    network=True,
    # Each run keeps a sample for the whole window.
    period_s=30.0,
    fail_for_s=30.0,
    clear_for_s=30.0,
    needs_interval_s=2.0,
    triggers=("net.link",),
    skip=no_ports,
    action=_LINK,
)
def nic_flap(sources: Sources, profile: NodeProfile, limits: FlapLimits) -> Iterator[Finding]:
    """The link of a data port may go down a few times in the window."""
    yield from judge_ports(profile, lambda port: _port(sources, port, limits), absent="see nic.port")


def _port(sources: Sources, port: NicPort, limits: FlapLimits) -> Finding:
    counts = sysfs_counts(sources, port, (DOWNED,)).joined(_carrier(sources, port))
    deltas = growth(sources, "nic.flap", port, counts.values, limits.window_s)
    return _judge(port, counts, deltas, limits)


def _carrier(sources: Sources, port: NicPort) -> Counts:
    """The interface's count; InfiniBand may have no interface, an old kernel no count."""
    if port.netdev is None:
        return Counts({})
    downs = sources.net.link(port.netdev).carrier_down_count
    return Counts({}, (CARRIER,)) if downs is None else Counts({CARRIER: downs})


def _judge(port: NicPort, counts: Counts, deltas: dict[str, CounterDelta], limits: FlapLimits) -> Finding:
    subject = subject_of(port)
    # Both count the same event, each on its side of the driver.
    worst = max(deltas.values(), key=lambda delta: delta.delta)
    flaps, hours = worst.delta, worst.seconds / 3600
    summary = f"the link went down {flaps} times in {hours:.1f} h{counts.without()}"
    if flaps > limits.max_flaps:
        basis = Basis.limit("max_flaps")
        cls = ServingClass.HARD if flaps >= limits.hard_flaps else ServingClass.SOFT
        return Finding(
            subject, Verdict.FAIL, summary, flaps, limits.max_flaps, "flaps", _LINK, cls, basis=basis
        )
    if flaps >= limits.warn_flaps:
        basis = Basis.limit("warn_flaps")
        return Finding(subject, Verdict.WARN, summary, flaps, limits.warn_flaps, "flaps", _LINK, basis=basis)
    if full(counts.values) and CARRIER not in counts.values:
        stuck = f"link_downed stands at {counts.values[DOWNED]} and counts no more: flaps go unseen"
        basis = Basis.standard("width of InfiniBand PortCounters")
        empty = advice.person("Clear the counter with perfquery -R.")
        return Finding(
            subject, Verdict.WARN, stuck, counts.values[DOWNED], "below it", "", empty, basis=basis
        )
    return Finding(
        subject, Verdict.PASS, summary, flaps, limits.max_flaps, "flaps", basis=Basis.limit("max_flaps")
    )
