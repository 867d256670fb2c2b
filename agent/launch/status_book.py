"""One engine's record, published to the board and told to the gate at each change."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agent.launch.engine_monitor import EngineMonitor
from agent.launch.engine_state import EngineEvent, EngineRecord, EventKind, allows, step
from agent.model import EnginePhase, EngineStatus
from agent.sources import Clock, EngineObservation
from agent.sources.engine import EngineBoard

logger = logging.getLogger("nodegate.launch")


class StatusBook:
    """Holds the record; the only place where it changes."""

    def __init__(
        self, name: str, clock: Clock, board: EngineBoard, on_status: Callable[[EngineStatus], None]
    ) -> None:
        """Begin with an absent engine, already on the board."""
        self.name = name
        self.clock = clock
        self.record = EngineRecord(since_mono_s=clock.mono_s())
        self.monitor: EngineMonitor | None = None
        self._board = board
        self._on_status = on_status
        self.publish()

    @property
    def phase(self) -> EnginePhase:
        """The engine's phase."""
        return self.record.phase

    @property
    def status(self) -> EngineStatus:
        """The record as the gate sees it."""
        return self.record.status(self.name)

    def allows(self, kind: EventKind) -> bool:
        """Whether this can happen now."""
        return allows(self.record, kind)

    def apply(self, event: EngineEvent) -> None:
        """Let an event happen: the board has it before the gate hears of it."""
        self.record = step(self.record, event, self.clock.mono_s())
        logger.info("engine %s: %s: %s", self.name, self.record.phase, self.record.reason)
        self.publish()
        self._on_status(self.status)

    def note(self, reason: str, *, pid: int | None = None) -> None:
        """Say what goes on within a phase; the same words again are no news."""
        if reason != self.record.reason or pid is not None:
            self.apply(EngineEvent(EventKind.NOTE, reason, pid=pid))

    def publish(self) -> None:
        """Put what is known now on the board."""
        status = self.status
        observation = self.monitor.observation(status) if self.monitor else EngineObservation(status=status)
        self._board.publish(self.name, observation)
