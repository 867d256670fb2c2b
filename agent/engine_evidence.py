"""What is kept of an engine's warm-up and soak: how long requests took, what the hardware did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WarmupStep:
    """One request of the warm-up.

    `kind` is short, long, concurrent or first_token. `prompt_tokens` is None where the prompt is text.
    `fault` says why the engine did not do what was asked where that does not fail the warm-up.
    """

    kind: str
    latency_s: float
    prompt_tokens: int | None = None
    first_token_s: float | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class WarmupCurve:
    """All requests of one warm-up in the order in which they ended."""

    steps: tuple[WarmupStep, ...] = ()

    def of(self, kind: str) -> list[WarmupStep]:
        """The requests of one kind."""
        return [step for step in self.steps if step.kind == kind]

    def words(self) -> str:
        """The curve on one line, for people."""
        parts: list[str] = []
        if short := self.of("short"):
            parts.append("short " + ", ".join(f"{step.latency_s:.2f} s" for step in short[:4]))
        for step in self.of("long"):
            took = f"({step.fault})" if step.fault else f"{step.latency_s:.2f} s"
            parts.append(f"prefill of {step.prompt_tokens} tokens {took}")
        if together := self.of("concurrent"):
            slowest_s = max(step.latency_s for step in together)
            parts.append(f"{len(together)} at once, the slowest {slowest_s:.2f} s")
        for step in self.of("first_token"):
            took = f"({step.fault})" if step.first_token_s is None else f"{step.first_token_s:.3f} s"
            parts.append(f"first token {took}")
        return "; ".join(parts) or "no request"

    def to_dict(self) -> dict[str, Any]:
        """The curve as JSON values; times are rounded to milliseconds."""
        return {"words": self.words(), "steps": [_rounded(asdict(step)) for step in self.steps]}


@dataclass(frozen=True, slots=True)
class SoakPeaks:
    """The extremes of one GPU during a soak; None = the GPU does not report it."""

    subject: str
    max_temperature_c: float | None = None
    min_margin_c: float | None = None
    max_draw_w: float | None = None
    min_sm_clock_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class SoakResult:
    """One soak: what was asked of the engine, what came of it, and what speaks against the hardware."""

    passed: bool
    seconds: float
    completions: int
    tokens: int
    #: Tokens per second in the first and the last third of the time: they fall where clocks fall.
    first_tokens_per_s: float
    last_tokens_per_s: float
    faults: tuple[str, ...] = ()
    peaks: tuple[SoakPeaks, ...] = ()
    #: The checks that watched, by id.
    watched: tuple[str, ...] = ()

    def words(self) -> str:
        """The result on one line, for people."""
        rate = f"{self.first_tokens_per_s:.0f} tokens/s at first, {self.last_tokens_per_s:.0f} at the end"
        hottest = _most([peak.max_temperature_c for peak in self.peaks], "hottest GPU {:.0f} C")
        least = [-peak.min_margin_c for peak in self.peaks if peak.min_margin_c is not None]
        margin = f", least margin {-max(least):.0f} C" if least else ""
        seen = f"{self.seconds:.0f} s, {self.completions} completions, {rate}{hottest}{margin}"
        if self.passed:
            return f"soak passed: {seen}"
        more = f" and {len(self.faults) - 1} more" if len(self.faults) > 1 else ""
        return f"soak failed: {self.faults[0] if self.faults else 'no evidence'}{more} ({seen})"

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {"words": self.words(), **_rounded(asdict(self))}


def _most(values: Sequence[float | None], words: str) -> str:
    known = [value for value in values if value is not None]
    return f", {words.format(max(known))}" if known else ""


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in values.items()}
