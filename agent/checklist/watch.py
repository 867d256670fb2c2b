"""The newest run of a checklist as the daemon tells it: read in a thread of its own, now and then."""

from __future__ import annotations

import logging
import threading
from typing import Any

from agent.checklist.store import RunStore
from agent.errors import SourceUnavailable
from agent.log_events import Event, about

log = logging.getLogger("nodegate.checklist")
PERIOD_S = 1.0


class ChecklistWatch:
    """Reads again and again; `current` may be asked from any thread."""

    def __init__(self, store: RunStore) -> None:
        """Nothing is read before `start`."""
        self._store = store
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checklists", daemon=True)
        self._problem = ""
        self._place: tuple[Any, ...] | None = None
        self._looked = False
        #: The newest run as /status has it, None where there is none.
        self.current: dict[str, Any] | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a reading under way is not waited for."""
        self._end.set()

    def look(self) -> None:
        """Read once. A record that cannot be read shows none, and is told once."""
        try:
            told = self._store.progress()
        except SourceUnavailable as cause:
            if str(cause) != self._problem:
                log.warning("%s", cause)
            self._problem, self.current = str(cause), None
            return
        self._problem = ""
        self._tell(told)
        if told is not None:
            told = {**told, "running": told.get("verdict") is None and self._store.is_running()}
        self.current = told

    def _tell(self, told: dict[str, Any] | None) -> None:
        """A line for a step that a run comes to, and its end; none for what an agent finds at its start."""
        place = None if told is None else (told["run_id"], told["step"], told["verdict"])
        if told is not None and self._looked and place != self._place:
            said = {"run_id": told["run_id"], "step": told["step"], "verdict": told["verdict"]}
            words = told["verdict"] or f"step {told['step']}"
            extra = about(Event.CHECKLIST_STEP, checklist=told["name"], **said)
            log.info("checklist %s: %s", told["name"], words, extra=extra)
        self._place, self._looked = place, True

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self.look()
            # The edge of the thread: without the checklist everything else goes on.
            except Exception:
                log.exception("the runs of checklists cannot be read")
            self._end.wait(PERIOD_S)
