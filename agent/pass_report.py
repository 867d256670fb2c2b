"""What one pass found, and its form as JSON that other programs rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.explain import Explainer, result_view
from agent.model import Phase, Result, Verdict

EXIT_PASS, EXIT_FAIL, EXIT_UNKNOWN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass found; `gating` are the results (check, subject) that would keep a gate from opening.

    A verdict in shadow or waived does not count in `verdict`. `notes` are worth a line to a person.
    """

    node: str
    simulated: bool
    profile_hash: str
    phase: Phase | None
    results: tuple[Result, ...]
    gating: frozenset[tuple[str, str]]
    verdict: Verdict
    duration_ms: float
    explainer: Explainer | None = None
    notes: tuple[str, ...] = ()

    def exit_code(self) -> int:
        """0 pass (warnings allowed), 1 a check failed, 2 nothing failed but something is unknown."""
        return {Verdict.FAIL: EXIT_FAIL, Verdict.UNKNOWN: EXIT_UNKNOWN}.get(self.verdict, EXIT_PASS)

    def to_json(self) -> dict[str, Any]:
        """The report as other programs rely on it (schema 1)."""
        return {
            "schema": 1,
            "node": self.node,
            "simulated": self.simulated,
            "profile_hash": self.profile_hash,
            "phase": None if self.phase is None else self.phase.value,
            "verdict": self.verdict.value,
            "duration_ms": round(self.duration_ms, 1),
            "notes": list(self.notes),
            "results": [self.entry(result) for result in self.results],
        }

    def entry(self, result: Result) -> dict[str, Any]:
        """One result with its explanation."""
        gating = (result.check, result.subject) in self.gating
        return {**result_view(result, self.explainer), "gating": gating}
