"""What roce.errors and ib.errors share: fault counters, rates over a baseline, and counters that are full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import Field

from agent.checks import advice
from agent.checks.ports import subject_of
from agent.checks.ports_counters import Counts, described, full, growth, short, sysfs_counts, totals
from agent.checks.registry import Limits
from agent.errors import BaselineOnly
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort
from agent.sources import Sources
from agent.sources.counters import CounterDelta

CABLE = advice.person("Check cable, transceiver and switch port of this link, and the switch's own counters.")
_EMPTY = advice.person(
    "Clear the full counters with perfquery -R (or reload the driver): until then new errors go unseen."
)
SYMBOLS = "counters/symbol_error"
_HOUR_S = 3600.0
#: Counters of which one count is a fault of the link or a connection that gave up.
FATAL = (
    "counters/link_downed",
    "counters/excessive_buffer_overrun_errors",
    "counters/local_link_integrity_errors",
    "hw_counters/rnr_nak_retry_err",
)
#: Counted for a peer that takes nothing any more: one that died must not close all who spoke with it.
GIVEN_UP = "hw_counters/rnr_nak_retry_err"


class ErrorLimits(Limits):
    """Tolerances of a port's error counters."""

    window_s: float = Field(60.0, description="Seconds over which growth is judged", ge=1, le=3600)
    hard_events: int = Field(
        3, description="Link faults in the window that close the gate of an RDMA engine", ge=1
    )
    symbol_errors_per_hour: int = Field(
        120, description="Symbol errors within an hour that are a failure (InfiniBand's own limit)", ge=1
    )
    warn_per_s: dict[str, float] = Field(
        default_factory=dict,
        description="Warning rates per second by counter, e.g. counters/symbol_error",
    )


@dataclass(frozen=True, slots=True)
class ErrorTable:
    """The counters of one kind of fabric: rates from which on they warn, and those that may be absent."""

    check: str
    prefix: str
    warn_per_s: Mapping[str, float]
    optional: tuple[str, ...]


def judge_errors(sources: Sources, port: NicPort, table: ErrorTable, limits: ErrorLimits) -> Finding:
    """One port. Raises BaselineOnly at the first sample, DeviceAbsent for a counter that is not there."""
    rates = {**table.warn_per_s, **limits.warn_per_s}
    counts = sysfs_counts(sources, port, dict.fromkeys((*FATAL, *rates)), table.optional)
    symbols = _symbols_in_an_hour(sources, port, table, counts)
    deltas = growth(sources, table.check, port, counts.values, limits.window_s)
    found = (
        _faults(port, deltas, limits)
        or _symbols(port, symbols, limits)
        or _rates(port, deltas, rates)
        or _full(port, counts)
        or _fine(port, counts, deltas)
    )
    # A counter that a site adds here may be another check's measure already.
    own = {name: value for name, value in counts.values.items() if name in (*FATAL, *table.warn_per_s)}
    return replace(found, measures=totals(table.prefix, own))


def _symbols_in_an_hour(
    sources: Sources, port: NicPort, table: ErrorTable, counts: Counts
) -> CounterDelta | None:
    """Symbol errors of the last hour at most; None at the first sample."""
    try:
        values = {SYMBOLS: counts.values[SYMBOLS]}
        return growth(sources, f"{table.check}/hour", port, values, _HOUR_S)[SYMBOLS]
    except BaselineOnly:
        return None  # the shorter window, sampled next, is at its baseline too and says so


def _faults(port: NicPort, deltas: Mapping[str, CounterDelta], limits: ErrorLimits) -> Finding | None:
    faults = {name: deltas[name] for name in FATAL if name in deltas and deltas[name].delta > 0}
    if not faults:
        return None
    events = max(delta.delta for delta in faults.values())
    of_link = max((delta.delta for name, delta in faults.items() if name != GIVEN_UP), default=0)
    cls = ServingClass.HARD if of_link >= limits.hard_events else ServingClass.SOFT
    basis = Basis.standard("counters of link faults")
    return Finding(
        subject_of(port), Verdict.FAIL, described(faults), events, 0, "events", CABLE, cls, basis=basis
    )


def _symbols(port: NicPort, symbols: CounterDelta | None, limits: ErrorLimits) -> Finding | None:
    most = limits.symbol_errors_per_hour
    if symbols is None or symbols.delta < most:
        return None
    summary = (
        f"{symbols.delta} symbol errors in {symbols.seconds / 60:.0f} min, {most} in an hour are a failure"
    )
    basis = Basis.limit("symbol_errors_per_hour")
    return Finding(subject_of(port), Verdict.FAIL, summary, symbols.delta, most, "errors", CABLE, basis=basis)


def _rates(port: NicPort, deltas: Mapping[str, CounterDelta], rates: Mapping[str, float]) -> Finding | None:
    fast = {name: d for name, d in deltas.items() if name in rates and d.per_second >= rates[name]}
    if not fast:
        return None
    name = max(fast, key=lambda name: fast[name].per_second / max(rates[name], 1e-9))
    rate, most = round(fast[name].per_second, 3), round(rates[name], 3)
    summary = f"{described(fast)}: {short(name)} comes {rate:g} times a second, {most:g} is too much"
    return Finding(
        subject_of(port), Verdict.WARN, summary, rate, most, "1/s", CABLE, basis=Basis.limit("warn_per_s")
    )


def _full(port: NicPort, counts: Counts) -> Finding | None:
    stopped = full(counts.values)
    if not stopped:
        return None
    words = ", ".join(f"{short(name)} stands at {value}" for name, value in stopped.items())
    value = next(iter(stopped.values()))
    basis = Basis.standard("width of InfiniBand PortCounters")
    return Finding(
        subject_of(port), Verdict.WARN, f"{words} and counts no more", value, f"below {value}", "", _EMPTY,
        basis=basis,
    )  # fmt: skip


def _fine(port: NicPort, counts: Counts, deltas: Mapping[str, CounterDelta]) -> Finding:
    seconds = max(delta.seconds for delta in deltas.values())
    summary = f"no errors in {seconds:.0f} s{counts.without()}"
    return Finding(subject_of(port), Verdict.PASS, summary, 0, 0, basis=Basis.limit("warn_per_s"))
