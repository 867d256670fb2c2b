"""nvlink.errors: does a link replay, recover or miscompute now?

NVML: nvmlDeviceGetFieldValues, fields 161 (data link replay), 162 (recovery), 163 (CRC) by link, on Hopper
and before. Only growth counts: a healthy GPU starts with counters that are not zero. The legacy kinds 3 and 4
of nvmlDeviceGetNvLinkErrorCounter (CRC data, ECC data) are never read: they grow on every healthy link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings
from agent.checks.nvlink_links import no_nvlink
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, ParseError
from agent.model import Finding, Measure, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.counters import CounterDelta
from agent.sources.gpu_reading import GpuReading, NvmlGroup

KINDS = {"replay_errors": "replay", "recovery_errors": "recovery", "crc_errors": "CRC"}
_REPAIR = advice.reseat(
    "Drain the node and run the vendor's NVLink diagnostics; reseat or replace the GPU if it recurs."
)


class ErrorLimits(Limits):
    """Tolerances of nvlink.errors."""

    window_s: float = Field(60.0, description="Seconds over which growth is judged", ge=1, le=3600)
    max_replays: int = Field(
        0, description="Replays or recoveries of one link in the window that are allowed", ge=0
    )
    crc_per_s: float = Field(100.0, description="CRC errors per second of one link that are a failure", gt=0)


@check(
    "nvlink.errors",
    title="NVLink error growth",
    source="nvmlDeviceGetFieldValues: fields 161, 162, 163 by link, growth since the last samples",
    serving_class=ServingClass.SOFT,
    limits=ErrorLimits,
    period_s=10.0,
    # As long as the window: one burst has left the window by then, so only errors that go on are confirmed.
    fail_for_s=60.0,
    clear_for_s=30.0,
    needs_interval_s=2.0,
    skip=no_nvlink,
    action=_REPAIR,
)
def nvlink_errors(sources: Sources, profile: NodeProfile, limits: ErrorLimits) -> Iterator[Finding]:
    """No link may replay or recover within the window; CRC errors warn, a storm of them closes the gate."""
    yield from judge_readings(
        sources, profile, NvmlGroup.NVLINK_ERRORS, lambda slot, now: _judge(slot, sources, now, limits)
    )


def _judge(slot: GpuSlot, sources: Sources, now: GpuReading, limits: ErrorLimits) -> Finding:
    # Every kind is sampled before any is judged, so that all baselines are of the same moment.
    values = {kind: now.integers(kind) for kind in KINDS}
    if not all(values.values()) or len({len(by_link) for by_link in values.values()}) != 1:
        raise ParseError("NVML gives no NVLink counters, or not the same number for each kind")
    if min(min(by_link) for by_link in values.values()) < 0:
        raise ParseError("an NVLink counter reads less than zero")
    totals = tuple(
        Measure("nvlink_errors_total", sum(by_link), KINDS[kind].lower()) for kind, by_link in values.items()
    )
    return replace(_judged(slot, _growth(sources, now, values, limits), limits), measures=totals)


def _judged(slot: GpuSlot, growth: dict[tuple[str, int], CounterDelta], limits: ErrorLimits) -> Finding:
    storms = {at: d for at, d in growth.items() if at[0] == "crc_errors" and d.per_second >= limits.crc_per_s}
    if storms:
        return _finding(slot, Verdict.FAIL, _described(storms), growth, ServingClass.HARD)
    retries = {at: d for at, d in growth.items() if at[0] != "crc_errors" and d.delta > limits.max_replays}
    if retries:
        return _finding(slot, Verdict.FAIL, _described(retries), growth, ServingClass.SOFT)
    crc = {at: d for at, d in growth.items() if at[0] == "crc_errors" and d.delta > 0}
    if crc:
        return _finding(slot, Verdict.WARN, _described(crc), growth, ServingClass.SOFT)
    seconds = max(delta.seconds for delta in growth.values())
    return _finding(slot, Verdict.PASS, f"no NVLink errors in {seconds:.0f} s", growth, ServingClass.SOFT)


def _growth(
    sources: Sources, now: GpuReading, values: dict[str, list[int]], limits: ErrorLimits
) -> dict[tuple[str, int], CounterDelta]:
    """Growth of every counter of one GPU. Raises BaselineOnly, once all are sampled, at the first time."""
    growth: dict[tuple[str, int], CounterDelta] = {}
    first: BaselineOnly | None = None
    for kind, by_link in values.items():
        for link, value in enumerate(by_link):
            name = f"nvlink.errors/{now.uuid}/{kind}/{link}"
            try:
                growth[kind, link] = sources.counters.delta(name, value, now.mono_s, limits.window_s)
            except BaselineOnly as cause:
                first = first or cause
    if first is not None:
        raise first
    return growth


def _described(bad: dict[tuple[str, int], CounterDelta]) -> str:
    parts = [
        f"link {link}: {d.delta} {KINDS[kind]} errors in {d.seconds:.0f} s" for (kind, link), d in bad.items()
    ]
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    return "; ".join(parts[:3]) + more


def _finding(
    slot: GpuSlot,
    verdict: Verdict,
    summary: str,
    growth: dict[tuple[str, int], CounterDelta],
    cls: ServingClass,
) -> Finding:
    total = sum(delta.delta for delta in growth.values())
    return Finding(slot.subject, verdict, summary, total, 0, "errors", _REPAIR, cls)
