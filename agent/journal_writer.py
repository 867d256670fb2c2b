"""The journal's one writer thread: a bounded queue in front, a SQLite file behind, trouble kept to itself."""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agent.errors import ConfigError
from agent.journal_store import Retention, Row, is_damage, move_aside, open_store, retention_rows, write_rows
from agent.log_events import Event, about

log = logging.getLogger("nodegate.journal")

#: Rows that arrive within this time of one another share a commit.
BATCH_S = 0.02
BATCH_ROWS = 1000
RETRY_S = 1.0
#: So many rows wait in the queue, and as many again in the writer, while the disk takes none.
QUEUE_ROWS = 10_000
#: Old rows are dropped after so many seconds, and at the start.
PRUNE_EVERY_S = 600.0

_MARK = "INSERT INTO marks (wall_s, boot_id, mark, summary) VALUES (?, '', 'journal', ?)"


class _Flush:
    """A request to say when everything before it has been committed."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.complete = False


class _Stop:
    """The end of the queue."""


class JournalWriter:
    """Commits rows in order. `put` never waits and never raises."""

    def __init__(
        self,
        path: Path,
        retention: Retention,
        wall: Callable[[], float],
        *,
        retry_s: float = RETRY_S,
        queue_rows: int = QUEUE_ROWS,
    ) -> None:
        """Open the file and start. Raises ConfigError only for a file of a newer schema."""
        self._path = path
        self._retention = retention
        self._wall = wall
        self._retry_s = retry_s
        self._queue: queue.Queue[Row | _Flush | _Stop] = queue.Queue(queue_rows)
        self._queue_rows = queue_rows
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._waiting: list[Row] = []
        self._lock = threading.Lock()
        #: Rows lost so far; of these, how many the journal itself notes and a flush has told of.
        self._lost = 0
        self._noted = 0
        self._told = 0
        self._damaged = False
        self._pruned_at_s: float | None = None
        self._closing = threading.Event()
        #: Why rows do not get to the disk; empty while they do.
        self.trouble = ""
        #: What is worth a warning about the file although it works.
        self.notice = ""
        self._connect_or_note()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> None:
        """Queue a row; when the queue is full the row is dropped, counted and later noted in the journal."""
        try:
            self._queue.put_nowait(row)
        except queue.Full:
            with self._lock:
                self._lost += 1

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was put before is committed; False if not in time, or if rows were dropped."""
        request = _Flush()
        try:
            self._queue.put(request, timeout=timeout_s)
        except queue.Full:
            return False
        return request.done.wait(timeout_s) and request.complete

    def close(self, timeout_s: float) -> None:
        """Write what is left and end the thread; gives up after `timeout_s`."""
        if self._closing.is_set():
            return
        self._closing.set()
        try:
            self._queue.put(_Stop(), timeout=timeout_s)
        except queue.Full:
            return  # the disk takes nothing, so nothing is left to do
        self._thread.join(timeout_s)

    def _work(self) -> None:
        flushes: list[_Flush] = []
        stopping = False
        self._write()  # drops what is too old, before the first entry comes
        while not stopping:
            stopping = self._collect(flushes)
            if self._write():
                for request in flushes:
                    request.complete = self._lost == self._told
                    self._told = self._lost
                    request.done.set()
                flushes.clear()
            elif self._closing.is_set():
                break
            else:
                self._closing.wait(self._retry_s)
        if self._connection is not None:
            self._connection.close()

    def _collect(self, flushes: list[_Flush]) -> bool:
        """Take what has been queued, with a short wait for more; whether the end was met."""
        patience_s = self._retry_s if self.trouble else PRUNE_EVERY_S
        until_s = time.monotonic() + patience_s
        taken = 0
        while taken < BATCH_ROWS and len(self._waiting) < self._queue_rows:
            try:
                item = self._queue.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                return False
            if isinstance(item, _Stop):
                return True
            if isinstance(item, _Flush):
                flushes.append(item)
                return False
            self._waiting.append(item)
            taken += 1
            until_s = min(until_s, time.monotonic() + BATCH_S) if taken == 1 else until_s
        return False

    def _write(self) -> bool:
        """Commit what waits; whether that worked."""
        if self._connection is not None and self._file_is_gone():
            self._connection.close()
            self._connection = None
        if self._connection is None and not self._reconnect():
            return False
        rows = [*self._waiting, *self._pruning()]
        refused, lost = 0, self._lost
        if lost > self._noted:
            why = self.trouble or "faster than the disk took them, or not storable"
            rows.append(Row(_MARK, (self._wall(), f"{lost - self._noted} entries were lost: {why}")))
        try:
            if rows and self._connection is not None:
                refused = write_rows(self._connection, rows)
        except sqlite3.Error as error:
            self._fail(error)
            return False
        self._waiting.clear()
        self._noted = lost
        with self._lock:
            self._lost += refused
        if self.trouble:
            log.warning("journal %s works again", self._path, extra=about(Event.JOURNAL_RECOVERED))
        self.trouble = ""
        return True

    def _pruning(self) -> list[Row]:
        now_s = time.monotonic()
        if self._pruned_at_s is not None and now_s - self._pruned_at_s < PRUNE_EVERY_S:
            return []
        self._pruned_at_s = now_s
        return retention_rows(self._retention, self._wall())

    def _connect_or_note(self) -> bool:
        """Open the file; a broken one is moved aside first. Whether it is open now."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._damaged:
                self._replace_file()
            try:
                self._connection = open_store(self._path)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                self._replace_file()
                self._connection = open_store(self._path)
            self._inode = self._path.stat().st_ino
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
            return False
        return True

    def _reconnect(self) -> bool:
        """Open the file again in the writer thread, which must outlive whatever it finds there."""
        try:
            return self._connect_or_note()
        except ConfigError as error:  # someone has put the file of a newer nodegate there
            self.trouble = str(error)
            return False

    def _replace_file(self) -> None:
        moved = move_aside(self._path)
        self._damaged = False
        self.notice = f"the journal was broken and has been moved to {moved}; a new one was begun"
        log.warning("%s", self.notice)

    def _fail(self, error: Exception) -> None:
        """Note why nothing can be written and let go of the file: it is opened anew at the next try."""
        if isinstance(error, sqlite3.Error) and is_damage(error):
            self._damaged = True
        text = f"cannot write the journal {self._path}: {error}"
        if text != self.trouble:
            log.warning("%s", text, extra=about(Event.JOURNAL_TROUBLE))
        self.trouble = text
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _file_is_gone(self) -> bool:
        """Whether someone has removed or replaced the file: rows would go into one that nobody can open."""
        try:
            return self._path.stat().st_ino != self._inode
        except OSError:
            return True
