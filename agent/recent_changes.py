"""The newest entries of the journal, read beside the main loop and published: no request reads the disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import AgentError
from agent.rows import merge, natural, subjects

if TYPE_CHECKING:
    from agent.journal import Journal

PERIOD_S = 1.0
READS = 3
#: Entries that are read, and rows that are shown once what is the same for several subjects is one row.
READ = 200
SHOWN = 20
#: Longer texts are cut: a row is for the eye, `nodegate history` has all of it.
MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened; `before` is empty where nothing was."""

    wall_s: float
    kind: str
    what: str
    who: str
    before: str
    after: str
    why: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The newest changes, newest first; `problem` says why they cannot be read."""

    rows: tuple[Change, ...] = ()
    problem: str = ""


NO_CHANGES = Changes()


class RecentChanges:
    """Keeps `changes` up to date on a thread of its own; a disk that hangs holds nobody up."""

    def __init__(self, journal: Journal) -> None:
        """Nothing is read before `start`."""
        self.changes = NO_CHANGES
        self._journal = journal
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recent-changes", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End; not waited for."""
        self._ending.set()

    def _work(self) -> None:
        """Read when something was recorded, and some more times: it gets to the disk a little later."""
        seen, left = -1, 0
        while not self._ending.is_set():
            recorded = self._journal.recorded
            left = READS if recorded != seen else left
            seen = recorded
            if left or self.changes.problem:
                left = max(0, left - 1)
                self.changes = self._read()
            self._ending.wait(PERIOD_S)

    def _read(self) -> Changes:
        try:
            return read_changes(self._journal)
        # A journal that is garbled in some new way must not leave the last rows standing as the newest ones.
        except Exception as defect:  # noqa: BLE001
            return Changes(problem=f"{type(defect).__name__}: {defect}")


def read_changes(journal: Journal) -> Changes:
    """What the journal has now. Reads the disk."""
    try:
        entries = journal.recent(READ)
    except AgentError as problem:
        return Changes(problem=str(problem))
    rows = [
        (e["wall_s"], e["kind"], *(_cut(str(e[key])) for key in ("what", "who", "before", "after", "why")))
        for e in entries
    ]
    return Changes(tuple(Change(*row) for row in merge(rows, 3, _together)[:SHOWN]))


def _together(several: Sequence[str]) -> str:
    return several[0] if len(several) == 1 else subjects(sorted(several, key=natural))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}…"
