"""roce.errors: does a data port lose, resend or discard now? Growth of counters, never lifetime values.

Kernel: /sys/class/infiniband/DEVICE/ports/N/{counters,hw_counters}/NAME, ethtool rx_prioN_discards.
https://enterprise-support.nvidia.com/s/article/understanding-mlx5-linux-counters-and-status-parameters
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import Field

from agent.checks import advice
from agent.checks.ports import judge_ports, not_roce, port_path, subject_of
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, DeviceAbsent, NotSupported, ParseError, SourceUnavailable
from agent.model import Finding, Measure, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources
from agent.sources.counters import CounterDelta

_CABLE = advice.person(
    "Check cable, transceiver and switch port of this link, and the switch's own counters."
)
_LOSSY = advice.play(
    "roce", "Compare PFC, ECN and buffers of host and switch: traffic of the lossless class is dropped."
)

#: Counters of which one count is a fault of the link or a connection that gave up.
FATAL = (
    "counters/link_downed",
    "counters/excessive_buffer_overrun_errors",
    "counters/local_link_integrity_errors",
    "hw_counters/rnr_nak_retry_err",
)
#: Counters that are judged by their rate: counts per second from which on they warn.
WARN_PER_S: dict[str, float] = {
    "counters/symbol_error": 10.0,
    "counters/link_error_recovery": 5 / 60,
    "counters/port_rcv_errors": 10.0,
    "counters/port_xmit_discards": 100.0,
    "hw_counters/local_ack_timeout_err": 1.0,
    "hw_counters/roce_slow_restart": 10.0,
}


class RoceLimits(Limits):
    """Tolerances of roce.errors."""

    window_s: float = Field(60.0, description="Seconds over which growth is judged", ge=1, le=3600)
    hard_events: int = Field(
        3, description="Link faults in the window that close the gate of an RDMA engine", ge=1
    )
    lossless_discards_per_s: float = Field(
        10.0,
        description="Lossless discards per second that are a failure; fewer warn",
        gt=0,
    )
    warn_per_s: dict[str, float] = Field(
        default_factory=dict,
        description="Warning rates per second by counter, e.g. counters/symbol_error",
    )
    optional: tuple[str, ...] = Field(
        ("hw_counters/roce_slow_restart",),
        description="Counters that not every firmware has",
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth and totals of the counters of one port, and the optional ones that it does not have."""

    deltas: dict[str, CounterDelta]
    totals: dict[str, int]
    missing: tuple[str, ...]


@check(
    "roce.errors",
    title="RoCE error rates",
    source="/sys/class/infiniband/DEVICE/ports/N/{counters,hw_counters}/NAME; ethtool rx_prioN_discards",
    serving_class=ServingClass.SOFT,
    limits=RoceLimits,
    network=True,
    period_s=10.0,
    fail_for_s=20.0,
    clear_for_s=30.0,
    needs_interval_s=2.0,
    triggers=("net.link",),
    skip=not_roce,
    action=_CABLE,
)
def roce_errors(sources: Sources, profile: NodeProfile, limits: RoceLimits) -> Iterator[Finding]:
    """No link fault may be counted within the window, and no error may come faster than its rate."""
    discards = f"rx_prio{profile.fabric.roce.priority}_discards"
    yield from judge_ports(
        profile, lambda port: _measured(port, _growth(sources, port, discards, limits), discards, limits),
        absent="see nic.present",
    )  # fmt: skip


def _measured(port: NicPort, growth: Growth, discards: str, limits: RoceLimits) -> Finding:
    totals = tuple(_total(name.rsplit("/", 1)[-1], value) for name, value in growth.totals.items())
    return replace(_judge(port, growth, discards, limits), measures=totals)


def _total(counter: str, value: int) -> Measure:
    """A counter's lifetime value; some drivers' counters have the prefix already."""
    return Measure(f"roce_{counter.removeprefix('roce_')}_total", value, counter=counter)


def _judge(port: NicPort, growth: Growth, discards: str, limits: RoceLimits) -> Finding:
    subject, deltas = subject_of(port), growth.deltas
    faults = {name: deltas[name] for name in FATAL if name in deltas and deltas[name].delta > 0}
    if faults:
        events = max(delta.delta for delta in faults.values())
        cls = ServingClass.HARD if events >= limits.hard_events else ServingClass.SOFT
        return Finding(subject, Verdict.FAIL, _described(faults), events, 0, "events", _CABLE, cls)
    lost = deltas[discards]
    if lost.per_second >= limits.lossless_discards_per_s:
        summary = f"lossless traffic is dropped: {_described({discards: lost})}"
        rate = round(lost.per_second, 3)
        return Finding(subject, Verdict.FAIL, summary, rate, limits.lossless_discards_per_s, "1/s", _LOSSY)
    rates = WARN_PER_S | limits.warn_per_s
    fast = {name: d for name, d in deltas.items() if name in rates and d.per_second >= rates[name]}
    if lost.delta > 0:
        fast[discards] = lost
    if fast:
        worst = round(max(delta.per_second for delta in fast.values()), 3)
        return Finding(subject, Verdict.WARN, _described(fast), worst, unit="1/s", action=_CABLE)
    without = f"; without {', '.join(growth.missing)}" if growth.missing else ""
    seconds = max(delta.seconds for delta in deltas.values())
    return Finding(subject, Verdict.PASS, f"no errors in {seconds:.0f} s{without}", 0, 0)


def _growth(sources: Sources, port: NicPort, discards: str, limits: RoceLimits) -> Growth:
    """Growth of every counter of one port. Raises BaselineOnly, once all are sampled, at the first time."""
    values, missing = _values(sources, port, discards, limits)
    now_mono_s = sources.clock.mono_s()
    deltas: dict[str, CounterDelta] = {}
    first: BaselineOnly | None = None
    for name, value in values.items():
        key = f"roce.errors/{subject_of(port)}/{name}"
        try:
            deltas[name] = sources.counters.delta(key, value, now_mono_s, limits.window_s)
        except BaselineOnly as cause:
            first = first or cause
    if first is not None:
        raise first
    return Growth(deltas, values, missing)


def _values(
    sources: Sources, port: NicPort, discards: str, limits: RoceLimits
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The counters as they are now, and the optional ones that are not there."""
    values: dict[str, int] = {}
    missing: list[str] = []
    for name in (*FATAL, *(WARN_PER_S | limits.warn_per_s)):
        try:
            values[name] = _count(sources.tree.integer(f"{port_path(port)}/{name}"), name)
        except DeviceAbsent:
            if name not in limits.optional:
                raise
            missing.append(name)
    if port.netdev is None:
        raise SourceUnavailable("the profile names no interface for this port")
    statistics = sources.net.ethtool_stats(port.netdev)
    if discards not in statistics:
        raise NotSupported(f"the driver of {port.netdev} has no statistic {discards}")
    values[discards] = _count(statistics[discards], discards)
    return values, tuple(missing)


def _count(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(f"{name} reads {value!r}, not a count")
    return value


def _described(grown: dict[str, CounterDelta]) -> str:
    parts = [f"{name.rsplit('/', 1)[-1]} +{d.delta} in {d.seconds:.0f} s" for name, d in grown.items()]
    return "; ".join(parts)
