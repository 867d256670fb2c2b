"""From what was seen to a verdict: faults of the hardware, then what is missing, then warnings (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from agent.checklist.measure import MeasureOutcome
from agent.checklist.record import StepFinding, Value
from agent.launch.soak_watch import HardwareWatch
from agent.model import Finding, Verdict, worst

#: Summaries name so many faults; all of them are among the findings.
_NAMED = 2
NOT_MEASURED = "nothing was measured"


@dataclass
class Evidence:
    """All that speaks for or against a node in one measured test."""

    findings: list[tuple[str, Finding]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def judge(self, check: str, finding: Finding) -> None:
        """Add a finding of the test's own."""
        self.findings.append((check, finding))

    def add_watch(self, watch: HardwareWatch, strict: Collection[str] = (), *, ended: bool = True) -> None:
        """What a watch has seen; of checks in `strict` a warning is a failure. `ended`: it ran to its end."""
        blamed = {(id_, finding.subject) for id_, finding in watch.fault_findings}
        self.findings += watch.fault_findings
        for id_, finding in watch.last_findings:
            if finding.verdict is Verdict.WARN and (id_, finding.subject) not in blamed:
                self.findings.append((id_, _as_failure(finding) if id_ in strict else finding))
        if ended:
            self.missing += watch.missing()

    def outcome(self, summary: str, hint: str = "") -> MeasureOutcome:
        """The verdict with its reasons; `summary` is what is said where all is well."""
        failed = [pair for pair in self.findings if pair[1].verdict is Verdict.FAIL]
        warned = [pair for pair in self.findings if pair[1].verdict is Verdict.WARN]
        verdicts = [Verdict.PASS, *(finding.verdict for _, finding in self.findings)]
        verdict = worst([*verdicts, Verdict.UNKNOWN] if self.missing else verdicts)
        if failed:
            summary, hint = _named(failed), _hint(failed) or hint
        elif self.missing:
            summary = _listed(self.missing)
        elif warned:
            summary = f"{summary}; {_named(warned)}"
            hint = _hint(warned) or hint
        told = [step_finding(id_, finding) for id_, finding in self.findings]
        return MeasureOutcome(verdict, summary, tuple(self.values), tuple(told), hint)


def unknown(text: str, hint: str = "", values: Sequence[Value] = ()) -> MeasureOutcome:
    """No measurement, and why."""
    return MeasureOutcome(Verdict.UNKNOWN, text, tuple(values), (), hint)


def step_finding(check: str, finding: Finding) -> StepFinding:
    """A finding as a record keeps it."""
    return StepFinding(
        check=check,
        subject=finding.subject,
        verdict=finding.verdict,
        observed="" if finding.observed is None else str(finding.observed),
        expected="" if finding.expected is None else str(finding.expected),
        unit=finding.unit,
        summary=finding.summary,
        hint=finding.action.hint,
    )


def _as_failure(finding: Finding) -> Finding:
    return Finding(
        finding.subject, Verdict.FAIL, finding.summary, finding.observed, finding.expected, finding.unit,
        finding.action, basis=finding.basis,
    )  # fmt: skip


def _named(pairs: Sequence[tuple[str, Finding]]) -> str:
    return _listed([f"{finding.subject}: {finding.summary}" for _, finding in pairs])


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more


def _hint(pairs: Iterable[tuple[str, Finding]]) -> str:
    return next((finding.action.hint for _, finding in pairs if finding.action.hint), "")
