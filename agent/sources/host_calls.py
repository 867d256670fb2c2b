"""Calls that may hang in the kernel or in a resolver, in threads that can be given up; one a question."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from agent.errors import SourceTimeout, SourceUnavailable

T = TypeVar("T")


class _Call:
    """One call under way: who asks the same meanwhile gets the same answer."""

    def __init__(self) -> None:
        self.started_s = time.monotonic()
        self.done = threading.Event()
        self.results: list[Any] = []
        self.failures: list[BaseException] = []

    def work(self, function: Callable[[], Any], ended: Callable[[], None]) -> None:
        """Run the function and keep what comes of it."""
        try:
            self.results.append(function())
        # Not swallowed: raised in every thread that asked.
        except BaseException as cause:  # noqa: BLE001
            self.failures.append(cause)
        finally:
            ended()
            self.done.set()


class SpareCalls:
    """Runs functions in daemon threads with a deadline; safe to use from many threads.

    A thread cannot be killed. While one hangs, the same question (`key`) is not asked again: it is answered
    with SourceTimeout at once, so that a file system that never answers costs one thread for good.
    """

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._lock = threading.Lock()
        self._calls: dict[str, _Call] = {}

    @property
    def outstanding(self) -> tuple[str, ...]:
        """What is being asked."""
        with self._lock:
            return tuple(self._calls)

    def call(self, key: str, function: Callable[[], T], deadline_s: float) -> T:
        """The function's result or exception. Raises SourceTimeout after the deadline."""
        call = self._under_way(key, function)
        waited_s = time.monotonic() - call.started_s
        if not call.done.wait(max(0.0, deadline_s - waited_s)):
            since_s = max(deadline_s, waited_s)
            raise SourceTimeout(f"{key}: no answer within {since_s:.3g} s")
        if call.failures:
            raise call.failures[0]
        result: T = call.results[0]
        return result

    def _under_way(self, key: str, function: Callable[[], Any]) -> _Call:
        """The call that asks this, started if there is none."""
        with self._lock:
            if key in self._calls:
                return self._calls[key]
            call = self._calls[key] = _Call()

        def ended() -> None:
            with self._lock:
                self._calls.pop(key, None)

        thread = threading.Thread(target=call.work, args=(function, ended), name="host-call", daemon=True)
        try:
            thread.start()
        except RuntimeError as cause:  # the system gives no more threads
            ended()
            raise SourceUnavailable(f"{key}: no thread to ask with: {cause}") from cause
        return call
