"""Lines of the benchmark: a part of nodegate against the least that could do it, in the same run; figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Ratio:
    """`seconds` of nodegate against `base_s` of what `base` names; `goal` is the ratio to stay below."""

    what: str
    seconds: float
    base_s: float
    base: str
    goal: float | None = None

    @property
    def ratio(self) -> float:
        """How many times as long."""
        return self.seconds / self.base_s

    def row(self) -> tuple[str, str, str, str, str, str]:
        """As cells of a table."""
        goal = f"<= {self.goal:g} x" if self.goal is not None else ""
        took, base = f"{self.seconds * 1000:.3f} ms", f"{self.base_s * 1000:.3f} ms"
        return (self.what, took, self.base, base, f"{self.ratio:.2f} x", goal)

    def as_json(self) -> dict[str, Any]:
        """As data."""
        return {**asdict(self), "ratio": self.ratio}


@dataclass(frozen=True)
class Figure:
    """A number that is no ratio: memory, CPU time."""

    what: str
    value: float
    unit: str
    goal: float | None = None

    def row(self) -> tuple[str, str, str, str, str, str]:
        """As cells of the same table."""
        goal = f"<= {self.goal:g} {self.unit}" if self.goal is not None else ""
        return (self.what, f"{self.value:.2f} {self.unit}", "", "", "", goal)

    def as_json(self) -> dict[str, Any]:
        """As data."""
        return asdict(self)
