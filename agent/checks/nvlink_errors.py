"""nvlink.errors: does a link replay, recover or miscompute now (Hopper and before)?

NVML: nvmlDeviceGetFieldValues, fields 161 (data link replay), 162 (recovery), 163 (CRC) by link. Only growth
counts: a healthy GPU starts with counters that are not zero. The legacy kinds 3 and 4 of
nvmlDeviceGetNvLinkErrorCounter (CRC data, ECC data) are never read: they grow on every healthy link.
Blackwell has other counters, which nvlink.ber judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_slots, read, slots
from agent.checks.nvlink_counters import Growth, counters, described, growth, judged_by
from agent.checks.nvlink_links import no_nvlink
from agent.checks.registry import Limits, check
from agent.errors import NotSupported
from agent.model import Basis, Finding, Measure, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GROUP_FIELDS, GpuReading, NvmlGroup

KINDS = {"replay_errors": "replay", "recovery_errors": "recovery", "crc_errors": "CRC"}
_WORDS = {field: f"{kind} errors" for field, kind in KINDS.items()}
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
    # The three fields of 18 links take 50 ms of the driver's time on each H200.
    period_s=60.0,
    deadline_s=10.0,
    # As long as the window: one burst has left the window by then, so only errors that go on are confirmed.
    fail_for_s=60.0,
    clear_for_s=60.0,
    unknown_for_s=120.0,
    needs_interval_s=2.0,
    skip=no_nvlink,
    action=_REPAIR,
)
def nvlink_errors(sources: Sources, profile: NodeProfile, limits: ErrorLimits) -> Iterator[Finding]:
    """No link may replay or recover within the window; CRC errors warn, a storm of them closes the gate."""
    least = profile.nvlink.links_per_gpu
    yield from judge_slots(slots(sources, profile), lambda slot: _judge(sources, slot, least, limits))


def _judge(sources: Sources, slot: GpuSlot, least: int, limits: ErrorLimits) -> Finding:
    now = _reading(sources, slot)
    if now is None or not any(now.supported(field) for field in KINDS):
        fields = GROUP_FIELDS[NvmlGroup.NVLINK_BER]
        return judged_by(sources, slot, NvmlGroup.NVLINK_BER, fields, "nvlink.ber")
    for field in KINDS:
        now.integers(field)  # of one family: a part that is refused is missing evidence
    values = counters(now, KINDS, least)
    totals = tuple(
        Measure("nvlink_errors_total", sum(by_link), KINDS[kind].lower()) for kind, by_link in values.items()
    )
    grown = growth(sources, "nvlink.errors", now, values, limits.window_s)
    return replace(_judged(slot, grown, limits), measures=totals)


def _reading(sources: Sources, slot: GpuSlot) -> GpuReading | None:
    """The counters; None where the platform has none of them."""
    try:
        return read(sources, slot, NvmlGroup.NVLINK_ERRORS)
    except NotSupported:
        return None


def _judged(slot: GpuSlot, growth: Growth, limits: ErrorLimits) -> Finding:
    storms = {at: d for at, d in growth.items() if at[0] == "crc_errors" and d.per_second >= limits.crc_per_s}
    if storms:
        return _finding(slot, Verdict.FAIL, storms, growth, "crc_per_s", ServingClass.HARD)
    retries = {at: d for at, d in growth.items() if at[0] != "crc_errors" and d.delta > limits.max_replays}
    if retries:
        return _finding(slot, Verdict.FAIL, retries, growth, "max_replays")
    crc = {at: d for at, d in growth.items() if at[0] == "crc_errors" and d.delta > 0}
    if crc:
        return _finding(slot, Verdict.WARN, crc, growth, "crc_per_s")
    seconds = max(delta.seconds for delta in growth.values())
    text = f"no NVLink errors in {seconds:.0f} s"
    return Finding(slot.subject, Verdict.PASS, text, sum(d.delta for d in growth.values()), 0, "errors")


def _finding(
    slot: GpuSlot,
    verdict: Verdict,
    bad: Growth,
    growth: Growth,
    limit: str,
    cls: ServingClass = ServingClass.SOFT,
) -> Finding:
    total = sum(delta.delta for delta in growth.values())
    summary = described(bad, _WORDS)
    return Finding(slot.subject, verdict, summary, total, 0, "errors", _REPAIR, cls, basis=Basis.limit(limit))
