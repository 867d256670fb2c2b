"""SeriesBook: the memory of values over time, so that checks can judge a trend or a pattern and keep nothing.

Counters that only grow are CounterBook's; here a value may go up and down.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import BaselineOnly, ParseError
from agent.sources.book_room import Room, is_finite

#: No check needs more: at one sample in two seconds this is over two hours.
MOST_SAMPLES = 4096


@dataclass(frozen=True, slots=True)
class Sample:
    """One value and when it was read."""

    mono_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one value within a window, oldest first; never empty."""

    name: str
    samples: tuple[Sample, ...]

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last sample."""
        return self.samples[-1].mono_s - self.samples[0].mono_s

    @property
    def values(self) -> list[float]:
        """The values alone."""
        return [sample.value for sample in self.samples]

    def pairs(self) -> list[tuple[Sample, Sample]]:
        """Each sample with its successor."""
        return list(zip(self.samples, self.samples[1:], strict=False))

    def grown(self) -> Series:
        """Itself. Raises BaselineOnly while there is but one moment to look at."""
        if self.span_s <= 0:
            raise BaselineOnly(f"first sample of {self.name}")
        return self

    def thirds(self) -> tuple[float, float, float]:
        """Mean value of the first, middle and last third of the span; a third without samples takes the
        one before it."""
        start_s, third_s = self.samples[0].mono_s, self.span_s / 3 or 1.0
        parts: list[list[float]] = [[], [], []]
        for sample in self.samples:
            parts[min(2, int((sample.mono_s - start_s) / third_s))].append(sample.value)
        means: list[float] = []
        for part in parts:
            means.append(sum(part) / len(part) if part else means[-1])
        return means[0], means[1], means[2]


class SeriesBook:
    """Samples by name, kept for the window that is asked for; safe across threads."""

    def __init__(self) -> None:
        """Start with no samples."""
        self._lock = threading.Lock()
        self._samples: dict[str, deque[Sample]] = {}
        #: By name the first sample, and when the name was last asked for.
        self._first: dict[str, tuple[Sample, float]] = {}
        self._kept: set[str] = set()
        self._rooms = Room(), Room()

    def __len__(self) -> int:
        return len(self._samples) + len(self._first)

    def record(
        self, name: str, value: float, now_mono_s: float, window_s: float, *, keep: bool = False
    ) -> Series:
        """Add a sample; what is known of the last `window_s` seconds. Time that goes back starts anew.

        With `keep` a restarted agent goes on with it: where the gap in between says nothing wrong.
        """
        with self._lock:
            if name not in self._samples:
                self._rooms[0].make(self._samples, lambda known: known[-1].mono_s, now_mono_s)
            samples = self._samples.setdefault(name, deque(maxlen=MOST_SAMPLES))
            if samples and now_mono_s < samples[-1].mono_s:
                samples.clear()
            if samples and now_mono_s == samples[-1].mono_s:
                samples.pop()
            samples.append(Sample(now_mono_s, value))
            if keep:
                self._kept.add(name)
            while samples[0].mono_s < now_mono_s - window_s:
                samples.popleft()
            return Series(name, tuple(samples))

    def export(self) -> dict[str, object]:
        """The samples that are kept as JSON values, [time, value] each."""
        with self._lock:
            self._kept &= self._samples.keys()
            return {
                name: [[sample.mono_s, sample.value] for sample in self._samples[name]]
                for name in sorted(self._kept)
            }

    def restore(self, data: object, now_mono_s: float) -> None:
        """Take back what `export` wrote on this boot; raises ParseError, and then nothing is taken back."""
        if not isinstance(data, Mapping):
            raise ParseError("not a stored book of values")
        restored = {str(name): _restored(entry, now_mono_s) for name, entry in data.items()}
        with self._lock:
            self._samples = {**restored, **self._samples}

    def first(self, name: str, value: float, now_mono_s: float) -> Sample:
        """The first sample that was ever given under this name, which is this one at the first time."""
        with self._lock:
            if name not in self._first:
                self._rooms[1].make(self._first, lambda known: known[1], now_mono_s)
            first = self._first[name][0] if name in self._first else Sample(now_mono_s, value)
            self._first[name] = first, now_mono_s
            return first


def _restored(entry: object, now_mono_s: float) -> deque[Sample]:
    """The samples of one name. Raises ParseError."""
    if not isinstance(entry, list) or not entry:
        raise ParseError("not a stored row of values")
    samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
    for pair in entry:
        if not isinstance(pair, list) or len(pair) != 2 or not all(is_finite(part) for part in pair):
            raise ParseError("a stored value is no number with its time")
        sample = Sample(float(pair[0]), float(pair[1]))
        if sample.mono_s > now_mono_s or (samples and sample.mono_s <= samples[-1].mono_s):
            raise ParseError("a stored value is yet to come, or out of order")
        samples.append(sample)
    return samples
