"""What has just hung or crashed is left alone for a while, longer each time: it cannot stall the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.errors import SourceError

MAX_REST_S = 300.0


@dataclass(frozen=True, slots=True)
class _Rest:
    strikes: int
    until_s: float
    error: type[SourceError]
    text: str


class Cooldown:
    """Rests by name (a GPU, one group of its values, `node`). Not thread-safe: its owner holds a lock."""

    def __init__(self, mono_s: Callable[[], float]) -> None:
        """Start with nothing at rest."""
        self._mono_s = mono_s
        self._rests: dict[str, _Rest] = {}

    def failed(self, name: str, error: SourceError, first_s: float) -> None:
        """Leave `name` alone for `first_s` seconds, twice as long at every further failure in a row."""
        before = self._rests.get(name)
        strikes = before.strikes + 1 if before else 1
        rest_s = min(MAX_REST_S, first_s * 2.0 ** min(strikes - 1, 16))
        self._rests[name] = _Rest(strikes, self._mono_s() + rest_s, type(error), str(error))

    def worked(self, name: str) -> None:
        """Forget the failures of `name`."""
        self._rests.pop(name, None)

    def why_not(self, name: str) -> SourceError | None:
        """The error with which `name` is left alone now; None when it may be tried."""
        rest = self._rests.get(name)
        if rest is None:
            return None
        left_s = rest.until_s - self._mono_s()
        return rest.error(f"{rest.text}; next try in {left_s:.0f} s") if left_s > 0 else None
