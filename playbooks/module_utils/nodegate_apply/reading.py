"""What a slow tool said: asked once, remembered until something is written, several tools asked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from .host import HostError

T = TypeVar("T")
_AT_ONCE = 8


class Reading(Generic[T]):
    """One answer; a failure is remembered as well, so that a hung tool is waited for once."""

    def __init__(self, ask: Callable[[], T]) -> None:
        """`ask` runs the tool. It raises HostError."""
        self._ask = ask
        self._value: T | None = None
        self._error: HostError | None = None

    def get(self) -> T:
        """The answer. Raises HostError."""
        self.look()
        if self._error is not None:
            raise self._error
        assert self._value is not None
        return self._value

    def look(self) -> None:
        """Ask unless the answer is known."""
        if self._value is None and self._error is None:
            try:
                self._value = self._ask()
            except HostError as cause:
                self._error = cause

    def forget(self) -> None:
        """Something was written: ask again."""
        self._value, self._error = None, None


def look_at_once(readings: Iterable[Reading[Any]]) -> None:
    """Ask all of them side by side: each card takes seconds for itself."""
    due = list(readings)
    if len(due) > 1:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda reading: reading.look(), due))
