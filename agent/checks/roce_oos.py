"""roce.oos: how many of a million RDMA packets arrive out of order, are missed or are sent again?

Kernel: /sys/class/infiniband/DEVICE/ports/N/hw_counters/NAME over counters/port_{rcv,xmit}_packets.
What is normal depends on the fabric (adaptive routing reorders): calibrate the limits on a healthy one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.ports import judge_ports, not_roce, subject_of
from agent.checks.ports_counters import NOT_COUNTED, Counts, growth, short, sysfs_counts, totals
from agent.checks.registry import Limits, check
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources
from agent.sources.counters import CounterDelta

_RETRANSMITS = advice.person(
    "Compare roce.ecn_config, roce.pfc_config and roce.lossless_drop of both ends and the switch's drops.",
)
RECEIVED, SENT = "counters/port_rcv_packets", "counters/port_xmit_packets"
#: Each counter with the packets that it is a share of.
OF: dict[str, str] = {
    "hw_counters/out_of_sequence": RECEIVED,
    "hw_counters/out_of_buffer": RECEIVED,
    "hw_counters/packet_seq_err": SENT,
    "hw_counters/implied_nak_seq_err": SENT,
    "hw_counters/roce_adp_retrans": SENT,
}


class OrderLimits(Limits):
    """Tolerances of roce.oos."""

    window_s: float = Field(60.0, description="Seconds over which growth is judged", ge=1, le=3600)
    min_packets: int = Field(
        100_000, description="Packets that a share is taken of at least, however few there were", ge=1
    )
    warn_per_million: dict[str, float] = Field(
        default_factory=lambda: dict.fromkeys(map(short, OF), 100.0),
        description="Warning share by counter, in packets of a million",
    )
    fail_per_million: float = Field(
        10_000.0, description="Share from which on it is a failure, in packets of a million", gt=0
    )
    optional: tuple[str, ...] = Field(
        ("hw_counters/roce_adp_retrans",), description="Counters that not every firmware has"
    )


@check(
    "roce.oos",
    title="Packets out of order or sent again",
    source="/sys/class/infiniband/DEVICE/ports/N/hw_counters/{out_of_sequence,packet_seq_err,...}",
    serving_class=ServingClass.SOFT,
    limits=OrderLimits,
    network=True,
    period_s=30.0,
    fail_for_s=30.0,
    clear_for_s=60.0,
    needs_interval_s=2.0,
    skip=not_roce,
    action=_RETRANSMITS,
    if_unreadable=NOT_COUNTED.format("roce.oos"),
)
def roce_oos(sources: Sources, profile: NodeProfile, limits: OrderLimits) -> Iterator[Finding]:
    """Of the packets of a port, next to none may come out of order or be sent again."""
    yield from judge_ports(profile, lambda port: _port(sources, port, limits), absent="see nic.present")


def _port(sources: Sources, port: NicPort, limits: OrderLimits) -> Finding:
    counts = sysfs_counts(sources, port, (RECEIVED, SENT, *OF), limits.optional)
    deltas = growth(sources, "roce.oos", port, counts.values, limits.window_s)
    return replace(_judge(port, counts, deltas, limits), measures=totals("roce", counts.values))


def _judge(port: NicPort, counts: Counts, deltas: Mapping[str, CounterDelta], limits: OrderLimits) -> Finding:
    subject = subject_of(port)
    # Among few packets a share says nothing: the floor keeps one loss of ten from being 10 %.
    shares = {
        name: delta.delta / max(deltas[OF[name]].delta, limits.min_packets) * 1e6
        for name, delta in deltas.items()
        if name in OF
    }
    most = {name: limits.warn_per_million.get(short(name), limits.fail_per_million) for name in shares}
    high = {
        name: share for name, share in shares.items() if share >= min(most[name], limits.fail_per_million)
    }
    if not high:
        packets = deltas[RECEIVED].delta + deltas[SENT].delta
        summary = f"in order: {packets} packets in {deltas[SENT].seconds:.0f} s{counts.without()}"
        worst = round(max(shares.values(), default=0.0), 1)
        basis = Basis.limit("warn_per_million")
        return Finding(subject, Verdict.PASS, summary, worst, unit="of a million", basis=basis)
    worst_name = max(high, key=lambda name: high[name] / most[name])
    failed = high[worst_name] >= limits.fail_per_million
    words = "; ".join(f"{short(name)} {share:.0f} of a million packets" for name, share in high.items())
    return Finding(
        subject,
        Verdict.FAIL if failed else Verdict.WARN,
        words,
        round(high[worst_name], 1),
        limits.fail_per_million if failed else most[worst_name],
        "of a million",
        _RETRANSMITS,
        basis=Basis.limit("fail_per_million" if failed else "warn_per_million"),
    )
