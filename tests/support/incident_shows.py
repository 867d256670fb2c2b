"""What the engines of an incident's scene show of themselves, as functions of time."""

from __future__ import annotations

from typing import Any

from stage_time import START_MONO_S

from agent.sources import CanaryReport, CanaryVerdict


def shown(values: dict[str, Any], begun_s: float) -> dict[str, Any]:
    """What an engine shows of itself; `prefix` are hit rates from moments on, at 2000 prompt tokens/s.

    `canary` are verdicts of canaries with their reasons, from moments on.
    """
    canaries = values.pop("canary", None)
    if canaries is not None:

        def report(elapsed_s: float) -> CanaryReport:
            verdict, reason = [told for at_s, *told in canaries if at_s <= max(0.0, elapsed_s - begun_s)][-1]
            return CanaryReport(CanaryVerdict(verdict), elapsed_s + START_MONO_S, 0.2, reason)

        values["canary"] = report
    rates = values.pop("prefix", None)
    if rates is None:
        return values

    def hits(elapsed_s: float) -> float:
        since_s = elapsed_s - begun_s
        ends = [*(at_s for at_s, _ in rates[1:]), since_s]
        spans = [max(0.0, min(end_s, since_s) - at_s) for (at_s, _), end_s in zip(rates, ends, strict=True)]
        return 2000.0 * sum(span_s * rate for span_s, (_, rate) in zip(spans, rates, strict=True))

    queries = {"prefix_queries_total": lambda elapsed_s: 2000.0 * max(0.0, elapsed_s - begun_s)}
    return {**values, **queries, "prefix_hits_total": hits}
