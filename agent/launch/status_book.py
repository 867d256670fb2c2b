"""One engine's record, published to the board and told to the gate at each change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from agent.engine_evidence import SoakResult, WarmupCurve
from agent.launch.engine_state import EngineEvent, EngineRecord, EventKind, allows, step
from agent.log_events import Event, about
from agent.model import EnginePhase, EngineStatus
from agent.sources import Clock, EngineObservation
from agent.sources.engine import EngineBoard

#: Takes what the journal keeps of an engine: what it is about, and the line.
OnMark = Callable[[str, str], None]

logger = logging.getLogger("nodegate.launch")
_ENDS = (EnginePhase.ABSENT, EnginePhase.EXITED, EnginePhase.CRASHLOOP, EnginePhase.UNKILLABLE)
_EVENTS = {EnginePhase.STARTING: Event.ENGINE_STARTED, **dict.fromkeys(_ENDS, Event.ENGINE_ENDED)}


class Observer(Protocol):
    """Whoever knows what is seen of the engine now."""

    def observation(self, status: EngineStatus) -> EngineObservation:
        """All that is known now."""


class StatusBook:
    """Holds the record; the only place where it changes."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        board: EngineBoard,
        on_status: Callable[[EngineStatus], None],
        on_mark: OnMark | None = None,
        *,
        looked: bool = True,
    ) -> None:
        """Begin with an absent engine, already on the board; `looked`: nothing is to be looked for first."""
        self.name = name
        self.clock = clock
        self.record = EngineRecord(since_mono_s=clock.mono_s())
        self.monitor: Observer | None = None
        #: What was seen of the engine that runs now.
        self.warmup: WarmupCurve | None = None
        self.soak: SoakResult | None = None
        #: Whether it is known what an earlier agent left; until then "absent" is no knowledge.
        self.looked = looked
        self._board = board
        self._on_status = on_status
        self._on_mark = on_mark
        self.publish()

    @property
    def phase(self) -> EnginePhase:
        """The engine's phase."""
        return self.record.phase

    @property
    def status(self) -> EngineStatus:
        """The record as the gate sees it, with what its warm-up and soak have shown."""
        return replace(self.record.status(self.name), warmup=self.warmup, soak=self.soak)

    def allows(self, kind: EventKind) -> bool:
        """Whether this can happen now."""
        return allows(self.record, kind)

    def apply(self, event: EngineEvent) -> None:
        """Let an event happen: the board has it before the gate hears of it."""
        self.record = step(self.record, event, self.clock.mono_s())
        if self.record.phase in (EnginePhase.ABSENT, EnginePhase.STARTING):
            self.warmup = self.soak = None  # they were of an engine that is gone
        phase, reason = self.record.phase, self.record.reason
        said = about(_EVENTS.get(phase, Event.ENGINE_CHANGED), engine=self.name, new=phase, reason=reason)
        logger.info("engine %s: %s: %s", self.name, phase, reason, extra=said)
        self.publish()
        self._on_status(self.status)

    def note(self, reason: str, *, pid: int | None = None) -> None:
        """Say what goes on within a phase; the same words again are no news."""
        if reason != self.record.reason or pid is not None:
            self.apply(EngineEvent(EventKind.NOTE, reason, pid=pid))

    def keep_warmup(self, curve: WarmupCurve) -> None:
        """Keep the curve of a warm-up that has ended, in the status and in the journal."""
        self.warmup = curve
        self._mark("warmup", f"warm-up: {curve.words()}")

    def keep_soak(self, result: SoakResult) -> None:
        """The same for a soak."""
        self.soak = result
        self._mark("soak", result.words())

    def _mark(self, what: str, words: str) -> None:
        said = about(Event.ENGINE_MEASURED, engine=self.name, what=what)
        logger.info("engine %s: %s", self.name, words, extra=said)
        if self._on_mark is not None:
            self._on_mark(what, f"engine {self.name}: {words}")

    def publish(self) -> None:
        """Put what is known now on the board."""
        status = self.status
        observation = (
            self.monitor.observation(status)
            if self.monitor
            else EngineObservation(status=status, looked=self.looked)
        )
        self._board.publish(self.name, observation)
