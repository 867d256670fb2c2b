"""The lines of a ledger as they are written."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.sources.launch_reading import Problem, Severity


@dataclass(frozen=True, slots=True)
class Line:
    """One figure and how it came about; `value_gib` is None where the text says all."""

    label: str
    arithmetic: str
    value_gib: float | None


@dataclass
class Book:
    """A ledger being written. Where the figures are not `certain`, nothing is refused for them."""

    certain: bool = True
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def errors(self) -> list[Problem]:
        """What makes the launch impossible."""
        return [problem for problem in self.problems if problem.severity is Severity.ERROR]

    def line(self, label: str, arithmetic: str, value_gib: float | None) -> None:
        """Add a line."""
        self.lines.append(Line(label, arithmetic, value_gib))

    def note(self, text: str) -> None:
        """Add a remark."""
        self.notes.append(text)

    def warn(self, where: str, text: str, remedy: str) -> None:
        """Add a warning."""
        self.problems.append(Problem(Severity.WARNING, where, text, remedy))

    def refuse(self, where: str, text: str, remedy: str) -> None:
        """Add what makes it impossible, or may, where the figures are not certain."""
        severity = Severity.ERROR if self.certain else Severity.WARNING
        self.problems.append(Problem(severity, where, text, remedy))


def gib(value: float) -> str:
    """A number of GiB as it is written everywhere."""
    return f"{value:.3f} GiB"
