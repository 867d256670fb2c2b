"""One contradiction between two parts of a profile."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CrossProblem:
    """A contradiction: where it shows (`path`), the value it contradicts (`other`), and what to do."""

    path: Path
    text: str
    other: Path | None
    remedy: str

    def __str__(self) -> str:
        """One line without file and line."""
        return f"{'.'.join(self.path)}: {self.text}; {self.remedy}"
