"""What every kind of step is given, and what it gives back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from agent.checklist.curves import CurveBook
from agent.checklist.model import Checklist
from agent.checklist.record import Answer, RunRecord, StepFinding, Value
from agent.checks.registry import Check
from agent.model import Verdict

if TYPE_CHECKING:
    from agent.checklist.daemon_link import DaemonLink
    from agent.profile_loader import LoadedProfile
    from agent.sources import Sources


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended."""

    verdict: Verdict
    summary: str
    findings: tuple[StepFinding, ...] = ()
    values: tuple[Value, ...] = ()
    answer: Answer | None = None
    hint: str = ""
    #: What it has done to maintenance and quarantine.
    outcome: tuple[str, ...] = ()


class CalledOff(Exception):
    """A person has ended the run; the step that it was in is to be done again."""


class Asker(Protocol):
    """Whoever answers questions."""

    def __call__(self, step: str, text: str) -> Answer | None:
        """The answer to a step's question, None where nobody can be asked."""


@dataclass(frozen=True)
class Surroundings:
    """What the steps of a run work with. Times are seconds of `sources.clock`."""

    checklist: Checklist
    record: RunRecord
    loaded: LoadedProfile
    sources: Sources
    checks: Mapping[str, Check]
    ask: Asker
    say: Callable[[str], None]
    #: The daemon of this node, None where there is none (a captured node).
    daemon: DaemonLink | None = None
    sleep: Callable[[float], None] = time.sleep
    curves: CurveBook = field(default_factory=CurveBook)
    #: Set when the run is called off.
    cancelled: threading.Event = field(default_factory=threading.Event)
    #: Whether a person at a terminal answers a step's question, who can be asked once more.
    asks_person: Callable[[str], bool] = lambda _step: False

    def now_s(self) -> float:
        """Monotonic seconds."""
        return self.sources.clock.mono_s()

    def refuse_if_cancelled(self) -> None:
        """Raises CalledOff when the run has been called off."""
        if self.cancelled.is_set():
            raise CalledOff
