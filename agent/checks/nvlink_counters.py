"""What nvlink.errors and nvlink.ber share: counters by link, their growth, and which of the two judges a GPU.

Hopper and before have fields 161-163 and answer Not Supported for 206-222, Blackwell has 206-222. Exactly one
of the two checks judges a GPU, the other is skipped for it; when neither family is there, both are UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from agent.checks.gpus import GpuSlot, read
from agent.errors import BaselineOnly, NotSupported, ParseError
from agent.model import Finding, Verdict
from agent.sources import Sources
from agent.sources.counters import CounterDelta
from agent.sources.gpu_reading import GpuReading, NvmlGroup

#: Field and link -> growth.
Growth = Mapping[tuple[str, int], CounterDelta]
#: No counter of NVML holds more.
_LIMIT = 2**64


def counters(now: GpuReading, fields: Iterable[str], least: int) -> dict[str, list[int]]:
    """Counters by field and link; one of which the platform has none is left out. Raises ParseError."""
    values: dict[str, list[int]] = {}
    for field in fields:
        if now.supported(field):
            values[field] = now.integers(field)
    check_lengths(values, least)
    if any(not 0 <= value < _LIMIT for by_link in values.values() for value in by_link):
        raise ParseError("an NVLink counter reads a number that no counter holds")
    return values


def check_lengths(values: Mapping[str, list[int]] | Mapping[str, list[float]], least: int) -> None:
    """All fields must tell of the same links, and of as many as the GPU must have."""
    lengths = {len(by_link) for by_link in values.values()}
    if len(lengths) > 1 or any(length < least for length in lengths):
        told = ", ".join(str(length) for length in sorted(lengths))
        raise ParseError(f"NVML gives NVLink counters of {told} links, {least} or more of each are needed")


def growth(
    sources: Sources, check: str, now: GpuReading, values: Mapping[str, list[int]], window_s: float
) -> Growth:
    """Growth of every counter; BaselineOnly is raised once all are sampled: one moment for all baselines."""
    grown: dict[tuple[str, int], CounterDelta] = {}
    first: BaselineOnly | None = None
    for field, by_link in values.items():
        for link, value in enumerate(by_link):
            name = f"{check}/{now.uuid}/{field}/{link}"
            try:
                grown[field, link] = sources.counters.delta(name, value, now.mono_s, window_s)
            except BaselineOnly as cause:
                first = first or cause
    if first is not None:
        raise first
    return grown


def described(bad: Growth, words: Mapping[str, str]) -> str:
    """`link 2: 1 replay errors in 10 s; ...`, at most three."""
    parts = [
        f"link {link}: {d.delta} {words[field]} in {d.seconds:.0f} s" for (field, link), d in bad.items()
    ]
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    return "; ".join(parts[:3]) + more


def judged_by(
    sources: Sources, slot: GpuSlot, group: NvmlGroup, fields: Iterable[str], other: str
) -> Finding:
    """The SKIP that names the check with this GPU's evidence. Raises NotSupported when it has none either."""
    with suppress(NotSupported):
        found = read(sources, slot, group)
        for field in fields:
            if not found.supported(field):
                continue
            found.integers(field)  # an answer that cannot be read is no evidence either
            return Finding(slot.subject, Verdict.SKIP, f"this GPU's NVLink errors are judged by {other}")
    raise NotSupported("NVML has NVLink error counters of neither generation for this GPU")
