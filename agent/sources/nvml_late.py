"""Values of a group that come late: read from the device when somebody looks at the first of them.

The NVLink error counters take 20 to 50 ms a GPU on H200, the link states beside them 0.5 ms. Who judges only
the states must not pay for the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

#: Fields of the NVLink group that are read at once, and on demand.
NVLINK_STATES = ("states", "speeds_mb_s")
NVLINK_ERRORS = ("replay_errors", "recovery_errors", "crc_errors")


class LateValues(Mapping[str, Any]):
    """Some values at hand and some to be fetched; the fetch raises SourceError like any reading."""

    def __init__(
        self, values: Mapping[str, Any], late: tuple[str, ...], fetch: Callable[[], Mapping[str, Any]]
    ) -> None:
        """`fetch` returns the values of the `late` fields."""
        self._values = dict(values)
        self._late = late
        self._fetch = fetch

    def __getitem__(self, field: str) -> Any:
        if field in self._late and field not in self._values:
            self._values.update(self._fetch())
        return self._values[field]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._values, *self._late)))

    def __len__(self) -> int:
        return len(dict.fromkeys((*self._values, *self._late)))
