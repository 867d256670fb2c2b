"""Which token progress is the agent's own: its canaries make tokens too, and say nothing of clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agent.sources import Clock


class OwnTokens:
    """Tells when tokens last moved that no request of the agent can have made.

    Times are those of the poll before the one that saw the growth: it may have happened just after that.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin with no progress seen."""
        self._clock = clock
        self._in_flight = 0
        #: Growth seen by a poll that began before the first one after this moment may be the agent's own.
        self._ours = False
        self._ended_mono_s = 0.0
        self._polled_mono_s = clock.mono_s()
        self.progress_mono_s: float | None = None
        self.traffic_mono_s: float | None = None

    @contextmanager
    def request(self) -> Iterator[None]:
        """Around a request of the agent."""
        self._in_flight += 1
        self._ours = True
        try:
            yield
        finally:
            self._in_flight -= 1
            self._ended_mono_s = self._clock.mono_s()

    def polled(self, began_mono_s: float, *, moved: bool) -> None:
        """A poll that began then has ended; `moved` since the poll before it."""
        if moved:
            self.progress_mono_s = self._polled_mono_s
            if not self._ours:
                self.traffic_mono_s = self._polled_mono_s
        self._polled_mono_s = began_mono_s
        if not self._in_flight and began_mono_s >= self._ended_mono_s:
            self._ours = False  # what the agent made before this poll began is counted by now

    def busy(self) -> None:
        """A request of the agent had no answer while tokens moved: they were its clients'."""
        self.traffic_mono_s = self.progress_mono_s
