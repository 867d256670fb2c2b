"""One line of the benchmark: a part of nodegate against the least that could do it, in the same run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """`seconds` of nodegate against `base_s` of what `base` names."""

    what: str
    seconds: float
    base_s: float
    base: str

    def row(self) -> tuple[str, str, str, str, str]:
        """As cells of a table."""
        ratio = f"{self.seconds / self.base_s:.2f} x"
        return (self.what, f"{self.seconds * 1000:.3f} ms", self.base, f"{self.base_s * 1000:.3f} ms", ratio)
