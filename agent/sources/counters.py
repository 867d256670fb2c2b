"""CounterBook: the memory that turns lifetime counters into deltas, so that checks need keep none.

The first sample of a counter is a baseline. A counter that goes down (reset, driver reload) starts a new
baseline, unless its width is known and it has wrapped. The book outlives the agent on the same boot: what
`export` wrote, `restore` takes back, but never a sample from the future.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.errors import BaselineOnly, ParseError
from agent.sources.book_room import Room, is_finite

#: Samples kept of one counter for one window; what comes closer replaces the newest.
MOST_SAMPLES = 240
#: A restored sample older than this many windows starts no window: nobody watched in between.
OLDEST_WINDOWS = 2.0


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """Growth of a counter over `seconds`; `since_baseline` is its growth since the first sample."""

    delta: int
    seconds: float
    since_baseline: int

    @property
    def per_second(self) -> float:
        """Growth per second."""
        return self.delta / self.seconds


@dataclass(slots=True)
class _Counter:
    """Samples (monotonic seconds, value) of one counter, oldest first; values go on where it wrapped."""

    baseline: int
    samples: deque[tuple[float, int]] = field(default_factory=deque)
    #: What the wraps so far have added.
    wrapped: int = 0
    restored: bool = False

    def add(self, now_mono_s: float, value: int, window_s: float) -> None:
        """Take in a sample: keep one at or before the window's start, and a bounded number after it."""
        samples = self.samples
        if now_mono_s <= samples[-1][0]:
            return
        crowded = len(samples) > 2 and now_mono_s - samples[-2][0] < window_s / MOST_SAMPLES
        if crowded:
            samples[-1] = (now_mono_s, value)
        else:
            samples.append((now_mono_s, value))
        while len(samples) > 2 and samples[1][0] <= now_mono_s - window_s:
            samples.popleft()


class CounterBook:
    """Samples by counter name; safe across threads. One name belongs to one check and one window."""

    def __init__(self) -> None:
        """Start with no baselines."""
        self._lock = threading.Lock()
        self._counters: dict[str, _Counter] = {}
        self._room = Room()

    def delta(
        self, name: str, value: int, now_mono_s: float, window_s: float = 60.0, *, bits: int | None = None
    ) -> CounterDelta:
        """Record a sample; growth over the last `window_s` seconds. Raises BaselineOnly at the first.

        `bits` is the counter's width, if it wraps to zero: a small value after a nearly full one is growth.
        """
        with self._lock:
            return self._delta(name, value, now_mono_s, window_s, bits)

    def deltas(
        self, prefix: str, values: Mapping[str, int], now_mono_s: float, window_s: float = 60.0
    ) -> dict[str, CounterDelta]:
        """`delta` of each of some counters, named `prefix/NAME` in the book, read at the same time.

        Raises BaselineOnly, once all are sampled, when one of them is new.
        """
        grown: dict[str, CounterDelta] = {}
        first: BaselineOnly | None = None
        with self._lock:
            for name, value in values.items():
                try:
                    grown[name] = self._delta(f"{prefix}/{name}", value, now_mono_s, window_s, None)
                except BaselineOnly as cause:
                    first = first or cause
        if first is not None:
            raise first
        return grown

    def _delta(
        self, name: str, value: int, now_mono_s: float, window_s: float, bits: int | None
    ) -> CounterDelta:
        known = self._counters.get(name)
        if known is not None and (bits is not None or known.wrapped):
            value = self._unwrapped(known, value, bits)
        if known is None:
            self._room.make(self._counters, lambda counter: counter.samples[-1][0], now_mono_s)
        if known is None or value < known.samples[-1][1]:
            self._counters[name] = _Counter(value, deque([(now_mono_s, value)]))
            raise BaselineOnly(f"first sample of {name}")
        if known.restored and now_mono_s - known.samples[-1][0] > OLDEST_WINDOWS * window_s:
            known.restored = False
            known.samples = deque([(now_mono_s, value)])
            raise BaselineOnly(f"first sample of {name} after a long time without one")
        known.restored = False
        known.add(now_mono_s, value, window_s)
        first_s, first = known.samples[0]
        if now_mono_s <= first_s:
            raise BaselineOnly(f"second sample of {name} at the same moment as its first")
        return CounterDelta(value - first, now_mono_s - first_s, value - known.baseline)

    @staticmethod
    def _unwrapped(known: _Counter, value: int, bits: int | None) -> int:
        """The value with all wraps added; one that fell without having been nearly full is a reset."""
        value += known.wrapped
        last = known.samples[-1][1]
        if bits is None or value >= last:
            return value
        span = 1 << bits
        nearly_full = last - known.wrapped >= span - span // 8
        if not nearly_full or value - known.wrapped >= span // 8:
            return value - known.wrapped  # a reset: the wraps are over too
        known.wrapped += span
        return value + span

    def export(self) -> dict[str, object]:
        """The book as JSON values: of each counter its baseline, wraps, and the ends of its window."""
        with self._lock:
            return {
                name: [counter.baseline, counter.wrapped, *counter.samples[0], *counter.samples[-1]]
                for name, counter in self._counters.items()
            }

    def restore(self, data: object, now_mono_s: float) -> None:
        """Take back what `export` wrote on this boot; raises ParseError, and then nothing is taken back."""
        if not isinstance(data, Mapping):
            raise ParseError("not a stored book of counters")
        restored = {str(name): _restored(entry, now_mono_s) for name, entry in data.items()}
        with self._lock:
            self._counters = {**restored, **self._counters}


def _restored(entry: object, now_mono_s: float) -> _Counter:
    """One counter of a stored book. Raises ParseError."""
    if not isinstance(entry, list) or len(entry) != 6:
        raise ParseError("not a stored counter")
    if any(isinstance(part, bool) or not isinstance(part, int | float) for part in entry):
        raise ParseError("a stored counter holds what is no number")
    baseline, wrapped, first_s, first, last_s, last = entry
    if not (is_finite(first_s) and is_finite(last_s) and first_s <= last_s <= now_mono_s):
        raise ParseError("a stored counter has a sample that is yet to come")
    if not all(isinstance(part, int) for part in (baseline, wrapped, first, last)) or first > last:
        raise ParseError("a stored counter does not fit together")
    samples = deque([(float(first_s), first)])
    if last_s > first_s:
        samples.append((float(last_s), last))
    return _Counter(baseline, samples, wrapped, restored=True)
