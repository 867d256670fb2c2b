"""What is known of a launch before it is made: flags, memory, checkpoint, as reports that checks judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from agent.errors import SourceUnavailable


class Severity(StrEnum):
    """What a problem does: an error refuses the launch, a warning is told."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: `where` names the flag, variable or file, `remedy` says what to do."""

    severity: Severity
    where: str
    text: str
    remedy: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.where}: {self.text}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What one look found; no problems = all is well.

    `pending` says what is still being looked at (checksums), empty when all is done. `facts` are figures for
    people and programs, names with their unit.
    """

    summary: str
    problems: tuple[Problem, ...] = ()
    pending: str = ""
    facts: Mapping[str, str | float] = field(default_factory=dict)


class NotLaunchedHere(SourceUnavailable):
    """Nobody makes the launch on this machine: a replayed node, or an engine that somebody else starts."""


class LaunchEvidence(Protocol):
    """Looks at an engine's launch without starting it. SourceUnavailable where it cannot look (yet)."""

    def flags(self, engine: str) -> LaunchReport:
        """Flags and environment against the installed engine."""

    def memory(self, engine: str) -> LaunchReport:
        """Weights, offload and key-value room against the devices and the host."""

    def checkpoint(self, engine: str) -> LaunchReport:
        """Index, shard count, sizes, checksums of the weights on disk."""


class NoLaunchEvidence:
    """A node whose engines' launches cannot be looked at (a replay, or somebody else launches them)."""

    def flags(self, engine: str) -> LaunchReport:
        """Raise NotLaunchedHere."""
        raise NotLaunchedHere(f"the launch of {engine} is not made on this machine")

    def memory(self, engine: str) -> LaunchReport:
        """Raise NotLaunchedHere."""
        raise NotLaunchedHere(f"the launch of {engine} is not made on this machine")

    def checkpoint(self, engine: str) -> LaunchReport:
        """Raise NotLaunchedHere."""
        raise NotLaunchedHere(f"the launch of {engine} is not made on this machine")
