"""What runs of checklists have shown on this node: the protocol that checks read by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class RunEnd(StrEnum):
    """What one run amounts to."""

    PASSED = "passed"
    FAILED = "failed"
    #: Passed with numbers that `--set` had lowered, from a file that is not the node's own, or simulated.
    PARTLY = "partly"
    #: Under way, or called off.
    OPEN = "open"
    GARBLED = "garbled"


@dataclass(frozen=True, slots=True)
class ChecklistRun:
    """One run; `parts`: the hardware (agent/checklist/hardware.py), `summary`: why it counts so."""

    run_id: str
    end: RunEnd
    summary: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


class ChecklistRuns(Protocol):
    """Runs by checklist."""

    def runs(self, checklist: str) -> Sequence[ChecklistRun]:
        """The newest runs that count as this checklist, newest first. Raises SourceUnavailable."""

    def parts_now(self) -> Mapping[str, str]:
        """The hardware as it is now. Raises SourceError."""


class NoRuns:
    """A pass without a daemon: what was run is not known."""

    def runs(self, checklist: str) -> Sequence[ChecklistRun]:
        """Always empty; the check says that it needs the daemon."""
        del checklist
        return ()

    def parts_now(self) -> Mapping[str, str]:
        """Nothing is compared."""
        return {}
