"""Threads that checks run in: reused while they come back, replaced while they hang.

Each run has a thread to itself, so a check that hangs for good takes no other check's place. Threads that
have been idle for a while end, so that the burst of a start does not stay in memory, and all end when there
are no jobs any more. All are daemon threads: one that hangs does not keep the process from ending.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable

#: An idle thread ends after this many seconds.
IDLE_S = 20.0
#: Of a stack, the innermost frames are kept.
MOST_FRAMES = 20


class CheckThreads:
    """Hands jobs to idle threads, the last one used first, and starts new ones when none is idle."""

    def __init__(self) -> None:
        """No threads yet."""
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._closed = False

    def run(self, job: Callable[[], None], name: str) -> threading.Thread:
        """Run a job, which must not raise, in a thread; that thread."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            worker = _Worker(self._come_back, self._may_end)
            worker.start()
        worker.name = name
        worker.jobs.put(job)
        return worker

    def close(self) -> None:
        """Let every thread end: the idle ones now, the others after their job."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for worker in idle:
            worker.jobs.put(None)

    def _come_back(self, worker: _Worker) -> bool:
        """Take a thread back; False when it is to end."""
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
            return not self._closed

    def _may_end(self, worker: _Worker) -> bool:
        """Whether an idle thread may end: not if it has just been given a job."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                return True
            return False


class _Worker(threading.Thread):
    """One thread."""

    def __init__(self, come_back: Callable[[_Worker], bool], may_end: Callable[[_Worker], bool]) -> None:
        super().__init__(daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._come_back = come_back
        self._may_end = may_end

    def run(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=IDLE_S)
            except queue.Empty:
                if self._may_end(self):
                    return
                continue
            if job is None:
                return
            job()
            del job  # an idle thread keeps nothing of its last run alive
            if not self._come_back(self):
                return


def stack_of(thread: threading.Thread) -> str:
    """Where a thread is now, innermost frame last; empty when it has ended."""
    frame = sys._current_frames().get(thread.ident or -1)
    if frame is None:
        return ""
    return "".join(traceback.format_stack(frame)[-MOST_FRAMES:])
