"""roce.errors: does a data port lose or resend now? Growth of counters, never lifetime values.

Kernel: /sys/class/infiniband/DEVICE/ports/N/{counters,hw_counters}/NAME. Drops of the lossless priority are
roce.lossless_drop, packets out of order roce.oos, links that come and go nic.flap.
https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks.ports import judge_ports, not_roce
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
    "counters/port_xmit_discards": 100.0,
    "hw_counters/local_ack_timeout_err": 1.0,
    "hw_counters/roce_slow_restart": 10.0,
}


class RoceLimits(ErrorLimits):
    """Tolerances of roce.errors."""

    optional: tuple[str, ...] = Field(
        ("hw_counters/roce_slow_restart",),
        description="Counters that not every firmware has",
    )


@check(
    "roce.errors",
    title="RoCE error rates",
    source="/sys/class/infiniband/DEVICE/ports/N/{counters,hw_counters}/NAME",
    serving_class=ServingClass.SOFT,
    limits=RoceLimits,
    network=True,
    period_s=10.0,
    fail_for_s=20.0,
    clear_for_s=30.0,
    needs_interval_s=2.0,
    triggers=("net.link",),
    skip=not_roce,
    action=CABLE,
    if_unreadable=NOT_COUNTED.format("roce.errors"),
)
def roce_errors(sources: Sources, profile: NodeProfile, limits: RoceLimits) -> Iterator[Finding]:
    """No link fault may be counted within the window, and no error may come faster than its rate."""
    table = ErrorTable("roce.errors", "roce", WARN_PER_S, limits.optional)
    yield from judge_ports(
        profile, lambda port: judge_errors(sources, port, table, limits), absent="see nic.present"
    )
