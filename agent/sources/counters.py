"""CounterBook: the memory that turns lifetime counters into deltas, so that checks need keep none.

The first sample of a counter is a baseline. A counter that goes down (reset, driver reload) starts a new
baseline.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from agent.errors import BaselineOnly


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


class CounterBook:
    """Samples by counter name, kept for the longest window that was asked for; safe across threads."""

    def __init__(self) -> None:
        """Start with no baselines."""
        self._lock = threading.Lock()
        self._samples: dict[str, deque[tuple[float, int]]] = {}
        self._baseline: dict[str, int] = {}

    def delta(self, name: str, value: int, now_mono_s: float, window_s: float = 60.0) -> CounterDelta:
        """Record a sample; growth over the last `window_s` seconds. Raises BaselineOnly at the first."""
        with self._lock:
            samples = self._samples.setdefault(name, deque())
            if samples and value < samples[-1][1]:
                samples.clear()
            if not samples:
                samples.append((now_mono_s, value))
                self._baseline[name] = value
                raise BaselineOnly(f"first sample of {name}")
            if now_mono_s > samples[-1][0]:
                samples.append((now_mono_s, value))
            # Keep one sample at or before the window's start so that the window is always covered.
            while len(samples) > 2 and samples[1][0] <= now_mono_s - window_s:
                samples.popleft()
            first_s, first = samples[0]
            if now_mono_s <= first_s:
                raise BaselineOnly(f"second sample of {name} at the same moment as its first")
            return CounterDelta(value - first, now_mono_s - first_s, value - self._baseline[name])
