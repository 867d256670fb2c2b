"""One reading for many settings: a command is asked once a look, not once a setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .host import HostError

T = TypeVar("T")


class SharedLook(Generic[T]):
    """What `fetch` gives, fetched again as soon as somebody reads for the second time.

    settle() reads every setting, writes, and reads every setting again: the second reading must be fresh. A
    fetch that failed is not tried again for the next reader, or a tool that hangs would hang once a setting.
    """

    def __init__(self, fetch: Callable[[], T]) -> None:
        """Fetch nothing yet."""
        self._fetch = fetch
        self._readers: set[str] = set()
        self._kept: list[T | HostError] = []

    def get(self, reader: str) -> T:
        """The value for this reader, who gets each fetch once. Raises what the fetch raised."""
        if not self._kept or reader in self._readers:
            self._readers = set()
            try:
                self._kept = [self._fetch()]
            except HostError as cause:
                self._kept = [cause]
        self._readers.add(reader)
        found = self._kept[0]
        if isinstance(found, HostError):
            raise HostError(str(found))
        return found

    def forget(self) -> None:
        """Something was written that changes it."""
        self._kept = []
