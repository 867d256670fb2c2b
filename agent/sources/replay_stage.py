"""Stage: what all replayed sources share: the folder, the timeline, and where in the scenario we are."""

from __future__ import annotations

import os
import threading
from typing import Any

from agent.errors import ConfigError, SourceUnavailable
from agent.sources import Clock
from agent.sources.node_folder import NodeFolder, read_again
from agent.sources.scenario import Scenario
from agent.sources.timeline import Timeline


class Stage:
    """A folder and a scenario at this moment; live documents are read again when they have been replaced."""

    def __init__(self, folder: NodeFolder, scenario: Scenario, clock: Clock) -> None:
        """Stand at second 0 until start()."""
        self.folder = folder
        self.scenario = scenario
        self.timeline = Timeline(folder, scenario)
        self.clock = clock
        self.opened_mono_s = clock.mono_s()
        self.started_mono_s: float | None = None
        self._lock = threading.Lock()
        self._newest = (folder, self.timeline)
        self._documents = [str(folder.path / f"{name}.json") for name in folder.live.documents]
        self._marks: list[tuple[int, int, int]] = []  # none, so that the first reading looks

    def elapsed_s(self) -> float:
        """Seconds into the scenario."""
        return 0.0 if self.started_mono_s is None else max(0.0, self.clock.mono_s() - self.started_mono_s)

    def now(self, *unit: str) -> Any:
        """A unit's value now."""
        return self._look()[1].value(unit, self.elapsed_s())

    def part(self, key: str, *unit: str) -> Any:
        """One part of a unit's value now; the whole when it is gone or refused."""
        return self._look()[1].part(unit, self.elapsed_s(), key)

    def captured(self) -> NodeFolder:
        """The folder with its live documents as they are now. Raises SourceUnavailable."""
        return self._look()[0]

    def _look(self) -> tuple[NodeFolder, Timeline]:
        """Fail closed: of documents that cannot be read nothing older is told."""
        if not self._documents:
            return self._newest
        with self._lock:
            try:
                marks = [_mark(path) for path in self._documents]
                if marks != self._marks:
                    folder = read_again(self.folder)
                    self._newest = (folder, Timeline(folder, self.scenario))
                    self._marks = marks
            except (ConfigError, OSError) as cause:
                self._marks = []
                raise SourceUnavailable(f"a live document: {cause}") from cause
            return self._newest


def _mark(path: str) -> tuple[int, int, int]:
    """Which file a path is, and when it was written."""
    found = os.stat(path)  # noqa: PTH116 (asked at every reading)
    return found.st_ino, found.st_mtime_ns, found.st_size
