"""Callers that want the same reading at almost the same time share one, its error too.

The first caller reads, whoever comes meanwhile or shortly after gets the same answer. What is handed out was
read at most a window ago or is being read now; nothing is kept longer. `drop` ends all sharing with what was
begun before it: news of a fault must not be answered with a reading from before the fault.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from agent.sources.nvml_ask import Answer

K = TypeVar("K", bound=Hashable)


class _Entry:
    """One reading: not there yet, an answer, or given up (done without one)."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Answer | None = None


class SharedReads(Generic[K]):
    """Readings by key; safe to use from many threads. A window of 0 s shares nothing."""

    def __init__(self, window_s: float, mono_s: Callable[[], float]) -> None:
        """Start with nothing read."""
        self._window_s, self._mono_s = window_s, mono_s
        self._lock = threading.Lock()
        self._entries: dict[K, _Entry] = {}

    def get(self, keys: Sequence[K], read: Callable[[list[K]], Mapping[K, Answer]]) -> dict[K, Answer]:
        """An answer to each key; `read` gets those that nobody has read or is reading."""
        answers: dict[K, Answer] = {}
        while missing := [key for key in keys if key not in answers]:
            own, others = self._claim(missing)
            if own:
                answers.update(self._read(own, read))
            # Own reads are done by now, so that two callers never wait for each other.
            for key, entry in others.items():
                if not entry.done.is_set():
                    entry.done.wait()
                if entry.answer is not None:
                    answers[key] = entry.answer
        return answers

    def drop(self) -> None:
        """Hand out nothing that was begun before now."""
        with self._lock:
            self._entries = {}

    def _claim(self, keys: Sequence[K]) -> tuple[dict[K, _Entry], dict[K, _Entry]]:
        """Which keys this caller must read, and which it can have from others."""
        own, others = {}, {}
        with self._lock:
            for key in keys:
                entry = self._entries.get(key)
                if entry is not None and self._usable(entry):
                    others[key] = entry
                else:
                    own[key] = _Entry()
            if self._window_s > 0:
                self._entries.update(own)
        return own, others

    def _usable(self, entry: _Entry) -> bool:
        if not entry.done.is_set():
            return True
        return entry.answer is not None and self._mono_s() - entry.answer.at_s <= self._window_s

    @staticmethod
    def _read(own: Mapping[K, _Entry], read: Callable[[list[K]], Mapping[K, Answer]]) -> Mapping[K, Answer]:
        try:
            answers = read(list(own))
            for key, entry in own.items():
                entry.answer = answers[key]
        finally:  # when reading was interrupted, those who wait read for themselves
            for entry in own.values():
                entry.done.set()
        return answers
