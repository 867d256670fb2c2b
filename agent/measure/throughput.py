"""Throughput of each GPU under matrix products: does it fall, is one slower than its siblings? (pure)

A GPU that is cold at first draws less for the same work, so a few percent are lost in the first minutes
(docs/measured.md). What incident 6 lost, 40 % after fifteen minutes, is far beyond that.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import Any

from agent.checklist.record import Value
from agent.checks import advice
from agent.measure.reports import figure
from agent.model import Action, Basis, Finding, Verdict

#: Reports of a GPU that are needed to see a fall: a third of them must be more than a few seconds.
_LEAST_REPORTS = 15
#: The first seconds of a load: clocks rise, libraries choose their kernels.
_SETTLE_S = 3.0
#: A GPU slower than the middle of its siblings by so much is told.
BEHIND_PERCENT = 15.0
_LEAST_SIBLINGS = 3
_SWAP = advice.reseat("Test this GPU again after a reset; if it stays so, swap it with another slot's.")


class Throughput:
    """What the worker has reported, by GPU subject."""

    def __init__(self) -> None:
        """Nothing is reported yet."""
        self._rates: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._wrong: dict[str, int] = {}

    def take(self, subject: str, report: dict[str, Any]) -> float | None:
        """One report; its rate in TFLOP/s, None for what is no report."""
        rate, at_s, wrong = (figure(report, name) for name in ("tflops", "at_s", "wrong"))
        if rate is None or at_s is None or wrong is None:
            return None
        self._rates[subject].append((at_s, rate))
        self._wrong[subject] = max(self._wrong.get(subject, 0), int(wrong))
        return rate

    @property
    def subjects(self) -> frozenset[str]:
        """The GPUs that have reported."""
        return frozenset(self._rates)

    def wrong(self) -> list[Finding]:
        """GPUs that computed differently from the same numbers."""
        return [
            Finding(
                subject, Verdict.FAIL, f"the same product came out differently {count} times", count, 0,
                "products", advice.SUPPORT, basis=Basis.standard("the same inputs give the same bits"),
            )
            for subject, count in self._wrong.items()
            if count > 0
        ]  # fmt: skip

    def values(self) -> list[Value]:
        """The mean of each GPU."""
        return [
            Value(
                name="throughput",
                subject=subject,
                value=round(fmean(self._settled(subject)), 2),
                unit="TFLOP/s",
            )
            for subject in sorted(self._rates)
            if self._settled(subject)
        ]

    def fallen(self, most_percent: float) -> list[Finding]:
        """GPUs whose last third is slower than their first by more than that."""
        found = []
        for subject in sorted(self._rates):
            rates = self._settled(subject)
            if len(rates) < _LEAST_REPORTS:
                continue
            third = len(rates) // 3
            first, last = fmean(rates[:third]), fmean(rates[-third:])
            percent = 100 * (1 - last / first) if first > 0 else 100.0
            if percent > most_percent:
                text = f"throughput fell by {percent:.0f} %, from {first:.3g} to {last:.3g} TFLOP/s"
                found.append(_fault(subject, Verdict.FAIL, text, percent, most_percent, advice.COOL))
        return found

    def behind(self) -> list[Finding]:
        """GPUs that are slower than the middle of all."""
        means = {
            subject: fmean(rates) for subject in sorted(self._rates) if (rates := self._settled(subject))
        }
        if len(means) < _LEAST_SIBLINGS:
            return []
        middle = median(means.values())
        return [
            _fault(
                subject, Verdict.WARN, f"{mean:.3g} TFLOP/s where the others give {middle:.3g}",
                100 * (1 - mean / middle), BEHIND_PERCENT, _SWAP,
            )
            for subject, mean in means.items()
            if mean < middle * (1 - BEHIND_PERCENT / 100)
        ]  # fmt: skip

    def _means(self) -> dict[str, float]:
        settled = {subject: self._settled(subject) for subject in sorted(self._rates)}
        return {subject: fmean(rates) for subject, rates in settled.items() if rates}

    def _settled(self, subject: str) -> list[float]:
        return [rate for at_s, rate in self._rates[subject] if at_s >= _SETTLE_S]


def _fault(subject: str, verdict: Verdict, text: str, percent: float, most: float, action: Action) -> Finding:
    basis = Basis.standard("throughput under load")
    return Finding(subject, verdict, text, round(percent, 1), f"<= {most:g}", "%", action, basis=basis)
