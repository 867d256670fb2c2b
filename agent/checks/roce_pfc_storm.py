"""roce.pfc_storm: how much of the time does pause stop the lossless priority, and has a storm been cut off?

ethtool -S: rx_prioN_pause_duration and tx_prioN_pause_duration (microseconds), tx_pause_storm_warning_events,
tx_pause_storm_error_events (the device stopped sending pause after it had been stalled for too long).
https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.ports import judge_ports, not_roce, subject_of
from agent.checks.ports_counters import Counts, described, driver_counts, growth, totals
from agent.checks.registry import Limits, check
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources
from agent.sources.counters import CounterDelta

_SLOW_RECEIVER = advice.person(
    "Look for the slow receiver: nic.pcie, nic.kmsg and the engine of this node where it sends pause, the"
    " switch's pause counters where it receives it; check that ECN acts before PFC."
)
STORM_WARNINGS, STORM_ERRORS = "tx_pause_storm_warning_events", "tx_pause_storm_error_events"


class StormLimits(Limits):
    """Tolerances of roce.pfc_storm."""

    window_s: float = Field(60.0, description="Seconds over which growth is judged", ge=1, le=3600)
    paused_percent: float = Field(
        5.0, description="Share of the time in pause from which on it warns, in percent", gt=0, le=100
    )


@check(
    "roce.pfc_storm",
    title="Pause pressure and storms",
    source="ethtool statistics {rx,tx}_prioN_pause_duration, tx_pause_storm_{warning,error}_events",
    serving_class=ServingClass.SOFT,
    limits=StormLimits,
    network=True,
    period_s=10.0,
    fail_for_s=20.0,
    clear_for_s=60.0,
    needs_interval_s=2.0,
    skip=not_roce,
    action=_SLOW_RECEIVER,
)
def roce_pfc_storm(sources: Sources, profile: NodeProfile, limits: StormLimits) -> Iterator[Finding]:
    """The lossless priority may be paused for a small part of the time, and no storm may be counted."""
    priority = profile.fabric.roce.priority
    yield from judge_ports(
        profile, lambda port: _port(sources, port, priority, limits), absent="see nic.port"
    )


def _port(sources: Sources, port: NicPort, priority: int, limits: StormLimits) -> Finding:
    paused = tuple(f"{side}_prio{priority}_pause_duration" for side in ("rx", "tx"))
    storms = (STORM_WARNINGS, STORM_ERRORS)
    counts = driver_counts(sources, port, (*paused, *storms), optional=storms)
    deltas = growth(sources, "roce.pfc_storm", port, counts.values, limits.window_s)
    found = _judge(port, counts, deltas, {name: deltas[name] for name in paused}, limits)
    return replace(found, measures=totals("roce", counts.values))


def _judge(
    port: NicPort,
    counts: Counts,
    deltas: Mapping[str, CounterDelta],
    paused: Mapping[str, CounterDelta],
    limits: StormLimits,
) -> Finding:
    subject, storm = subject_of(port), Basis.standard("pause storms of the device")
    for name, verdict, words in (
        (STORM_ERRORS, Verdict.FAIL, "the device cut a pause storm off and may drop lossless traffic"),
        (STORM_WARNINGS, Verdict.WARN, "the device was stalled and sent pause for long"),
    ):
        if name in deltas and deltas[name].delta > 0:
            summary = f"{words}: {described({name: deltas[name]})}"
            seen = deltas[name].delta
            return Finding(subject, verdict, summary, seen, 0, "events", _SLOW_RECEIVER, basis=storm)
    shares = {name: _percent(delta) for name, delta in paused.items()}
    name = max(shares, key=lambda name: shares[name])
    share, most, basis = round(shares[name], 2), limits.paused_percent, Basis.limit("paused_percent")
    if shares[name] > most:
        side = (
            "other end has stopped this port" if name.startswith("rx") else "port has stopped its other end"
        )
        summary = f"the {side} for {share:g} % of the last {paused[name].seconds:.0f} s"
        return Finding(subject, Verdict.WARN, summary, share, most, "%", _SLOW_RECEIVER, basis=basis)
    summary = f"in pause for {share:g} % of the last {paused[name].seconds:.0f} s{counts.without()}"
    return Finding(subject, Verdict.PASS, summary, share, most, "%", basis=basis)


def _percent(duration_us: CounterDelta) -> float:
    return duration_us.delta / 1e6 / duration_us.seconds * 100
