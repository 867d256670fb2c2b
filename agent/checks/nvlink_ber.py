"""nvlink.ber: does a link of the Blackwell generation make errors, and how good is it?

NVML: nvmlDeviceGetFieldValues, fields 206-214, 219 and 221 by link (only growth counts) and 220 and 222, the
effective and the symbol bit error rate since the link came up. A rate of 15e-238 (Blackwell) or 15e-255 is
how a link reads that has never made an error. Hopper answers Not Supported: nvlink.errors judges it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_slots, read, slots
from agent.checks.nvlink_counters import Growth, check_lengths, counters, described, growth, judged_by
from agent.checks.nvlink_errors import KINDS as OLDER_KINDS
from agent.checks.nvlink_links import no_nvlink
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, NotSupported, ParseError
from agent.model import Basis, Finding, Measure, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

KINDS = {
    "malformed_packets": "malformed packets",
    "buffer_overruns": "buffer overruns",
    "receive_errors": "receive errors",
    "remote_errors": "remote receive errors",
    "general_errors": "general receive errors",
    "integrity_errors": "link integrity errors",
    "transmit_discards": "transmit discards",
    "recoveries": "recoveries",
    "failed_recoveries": "failed recoveries",
    "effective_errors": "effective errors",
    "symbol_errors": "symbol errors",
}
RATES = {"effective_ber": "effective", "symbol_ber": "symbol"}
#: A rate no higher than this is how NVML writes none (mantissa 15 and the largest exponent it uses).
FLOOR = 15e-238
_REPAIR = advice.reseat(
    "Drain the node and read `nvidia-smi nvlink -e` and the fabric manager's log; reset the GPU, then reseat"
    " or replace it if the errors come back."
)


class BerLimits(Limits):
    """Tolerances of nvlink.ber."""

    window_s: float = Field(120.0, description="Seconds over which growth is judged", ge=1, le=3600)
    sustained_s: float = Field(
        900.0, description="Errors both in the window and earlier in this time are a failure", ge=1, le=86400
    )
    allowed: dict[str, int] = Field(
        default_factory=dict,
        description="Growth of one link in the window that is allowed, by counter; others: none",
    )
    warn_ber: float = Field(1e-12, description="Bit error rate above which a link is told", gt=0, le=1)
    fail_ber: float = Field(1e-6, description="Effective bit error rate that is a failure", gt=0, le=1)


@check(
    "nvlink.ber",
    title="NVLink bit errors (Blackwell)",
    source="nvmlDeviceGetFieldValues: fields 206-214, 219-222 by link, growth of the counters",
    serving_class=ServingClass.SOFT,
    limits=BerLimits,
    period_s=60.0,
    deadline_s=15.0,
    # As long as the window, as for nvlink.errors.
    fail_for_s=120.0,
    clear_for_s=60.0,
    unknown_for_s=300.0,
    needs_interval_s=2.0,
    skip=no_nvlink,
    action=_REPAIR,
)
def nvlink_ber(sources: Sources, profile: NodeProfile, limits: BerLimits) -> Iterator[Finding]:
    """No link's error counters may grow, and no link may have a high bit error rate."""
    least = profile.nvlink.links_per_gpu
    yield from judge_slots(slots(sources, profile), lambda slot: _judge(sources, slot, least, limits))


def _judge(sources: Sources, slot: GpuSlot, least: int, limits: BerLimits) -> Finding:
    now = _reading(sources, slot)
    if now is None or not any(now.supported(field) for field in (*KINDS, *RATES)):
        return judged_by(sources, slot, NvmlGroup.NVLINK_ERRORS, OLDER_KINDS, "nvlink.errors")
    values = counters(now, KINDS, least)
    if not values:
        raise NotSupported("NVML gives bit error rates but no error counters for this GPU")
    rates = _rates(now, least)
    totals = tuple(Measure("nvlink_errors_total", sum(v), kind) for kind, v in values.items())
    # The long window is sampled first, so that it has its baseline however the short one fares.
    lasting = _lasting(sources, now, values, limits)
    grown = growth(sources, "nvlink.ber", now, values, limits.window_s)
    return replace(_judged(slot, grown, lasting, rates, limits), measures=totals)


def _reading(sources: Sources, slot: GpuSlot) -> GpuReading | None:
    """The group; None where the platform has none of it."""
    try:
        return read(sources, slot, NvmlGroup.NVLINK_BER)
    except NotSupported:
        return None


def _rates(now: GpuReading, least: int) -> dict[str, list[float]]:
    rates = {field: now.numbers(field) for field in RATES if now.supported(field)}
    check_lengths(rates, least)
    if any(not 0 <= rate <= 1 for by_link in rates.values() for rate in by_link):
        raise ParseError("an NVLink bit error rate is not between 0 and 1")
    return rates


def _lasting(sources: Sources, now: GpuReading, values: Mapping[str, list[int]], limits: BerLimits) -> int:
    """Errors of all links together within the longer time; 0 until it has a baseline."""
    total = sum(sum(by_link) for kind, by_link in values.items() if kind not in limits.allowed)
    try:
        name = f"nvlink.ber/{now.uuid}/all"
        return sources.counters.delta(name, total, now.mono_s, limits.sustained_s).delta
    except BaselineOnly:
        return 0


def _judged(
    slot: GpuSlot, grown: Growth, lasting: int, rates: Mapping[str, list[float]], limits: BerLimits
) -> Finding:
    bad = {at: d for at, d in grown.items() if d.delta > limits.allowed.get(at[0], 0)}
    lost = {at: d for at, d in bad.items() if at[0] == "failed_recoveries"}
    hard, told = _high(rates, "effective_ber", limits.fail_ber), _told(rates, limits)
    if lost:
        return _counted(slot, Verdict.FAIL, lost, ServingClass.HARD)
    if hard:
        return _rated(slot, Verdict.FAIL, hard, "fail_ber", limits.fail_ber, ServingClass.HARD)
    if bad:
        now = sum(d.delta for d in bad.values())
        earlier = lasting - sum(d.delta for at, d in grown.items() if at[0] not in limits.allowed)
        again = f"; {earlier} more in the {limits.sustained_s:.0f} s before" if earlier > 0 else ""
        verdict = Verdict.FAIL if earlier > 0 else Verdict.WARN
        return _counted(slot, verdict, bad, ServingClass.SOFT, now, again)
    if told:
        return _rated(slot, Verdict.WARN, told, "warn_ber", limits.warn_ber, ServingClass.SOFT)
    seconds = max(delta.seconds for delta in grown.values())
    text = f"no NVLink errors in {seconds:.0f} s, worst bit error rate {_worst(rates)}"
    return Finding(slot.subject, Verdict.PASS, text, 0, 0, "errors")


def _told(rates: Mapping[str, list[float]], limits: BerLimits) -> dict[tuple[str, int], float]:
    return {at: rate for field in rates for at, rate in _high(rates, field, limits.warn_ber).items()}


def _high(rates: Mapping[str, list[float]], field: str, limit: float) -> dict[tuple[str, int], float]:
    return {(field, link): rate for link, rate in enumerate(rates.get(field, ())) if rate > limit}


def _worst(rates: Mapping[str, list[float]]) -> str:
    """The highest rate of all in words."""
    if not rates:
        return "not supported"
    highest = max(max(by_link) for by_link in rates.values())
    return "none" if highest <= FLOOR else f"{highest:.1e}"


def _counted(
    slot: GpuSlot, verdict: Verdict, bad: Growth, cls: ServingClass, total: int | None = None, more: str = ""
) -> Finding:
    observed = sum(d.delta for d in bad.values()) if total is None else total
    text = described(bad, KINDS) + more
    basis = Basis.limit("sustained_s" if more else "allowed")
    return Finding(slot.subject, verdict, text, observed, 0, "errors", _REPAIR, cls, basis=basis)


def _rated(
    slot: GpuSlot,
    verdict: Verdict,
    high: Mapping[tuple[str, int], float],
    field: str,
    limit: float,
    cls: ServingClass,
) -> Finding:
    parts = [f"link {link}: {RATES[kind]} bit error rate {rate:.1e}" for (kind, link), rate in high.items()]
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    text, worst = "; ".join(parts[:3]) + more, max(high.values())
    return Finding(slot.subject, verdict, text, worst, limit, "", _REPAIR, cls, basis=Basis.limit(field))
