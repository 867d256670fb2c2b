"""ib.errors: does an InfiniBand port lose, repair or resend now? Growth of counters, never lifetime values.

Kernel: /sys/class/infiniband/DEVICE/ports/N/{counters,hw_counters}/NAME. Those of `counters` are InfiniBand's
PortCounters: narrow, and they stop when they are full, which is told. PFC and ECN do not apply here.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks.ports import judge_ports, not_ib
from agent.checks.ports_counters import NOT_COUNTED
from agent.checks.ports_errors import CABLE, SYMBOLS, ErrorLimits, ErrorTable, judge_errors
from agent.checks.registry import check
from agent.model import Finding, ServingClass
from agent.node_profile import NodeProfile
from agent.sources import Sources

#: Counters that are judged by their rate: counts per second from which on they warn.
WARN_PER_S: dict[str, float] = {
    SYMBOLS: 10.0,
    "counters/link_error_recovery": 5 / 60,
    "counters/port_rcv_errors": 10.0,
    "counters/port_rcv_remote_physical_errors": 10.0,
    "counters/port_rcv_constraint_errors": 1.0,
    "counters/port_xmit_constraint_errors": 1.0,
    "counters/port_xmit_discards": 100.0,
    "counters/VL15_dropped": 10.0,
    "hw_counters/local_ack_timeout_err": 1.0,
    "hw_counters/out_of_sequence": 100.0,
    "hw_counters/packet_seq_err": 100.0,
}


class IbLimits(ErrorLimits):
    """Tolerances of ib.errors."""

    optional: tuple[str, ...] = Field(
        (
            "hw_counters/rnr_nak_retry_err",
            "hw_counters/local_ack_timeout_err",
            "hw_counters/out_of_sequence",
            "hw_counters/packet_seq_err",
        ),
        description="Counters that not every firmware has",
    )


@check(
    "ib.errors",
    title="InfiniBand error rates",
    source="/sys/class/infiniband/DEVICE/ports/N/{counters,hw_counters}/NAME",
    serving_class=ServingClass.SOFT,
    limits=IbLimits,
    network=True,
    period_s=10.0,
    fail_for_s=20.0,
    clear_for_s=30.0,
    needs_interval_s=2.0,
    triggers=("net.link",),
    skip=not_ib,
    action=CABLE,
    if_unreadable=NOT_COUNTED.format("ib.errors"),
)
def ib_errors(sources: Sources, profile: NodeProfile, limits: IbLimits) -> Iterator[Finding]:
    """No link fault may be counted within the window, and no error may come faster than its rate."""
    table = ErrorTable("ib.errors", "ib", WARN_PER_S, limits.optional)
    yield from judge_ports(
        profile, lambda port: judge_errors(sources, port, table, limits), absent="see nic.present"
    )
