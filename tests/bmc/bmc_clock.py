"""The time of a simulated BMC: runs faster than ours, and a test can move or stop it."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime


class BmcClock:
    """Durations of a BMC are minutes: `speed` BMC seconds pass in one of ours; 0 = only advance() moves it.

    Sessions are the exception: they live on our seconds, so that a client of a fast BMC keeps its login.
    """

    def __init__(self, speed: float) -> None:
        self._lock = threading.Lock()
        self._speed = speed
        self._real_s = time.monotonic()
        self._bmc_s = 0.0
        self._epoch_s = time.time()

    @property
    def speed(self) -> float:
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        now_s = self.now_s()
        with self._lock:
            self._bmc_s, self._real_s, self._speed = now_s, time.monotonic(), speed

    def now_s(self) -> float:
        """Seconds of the BMC since it was made."""
        with self._lock:
            return self._bmc_s + (time.monotonic() - self._real_s) * self._speed

    def advance(self, seconds: float) -> None:
        """Let this many BMC seconds have passed."""
        with self._lock:
            self._bmc_s += seconds

    def sleep(self, seconds: float) -> None:
        """Wait for BMC seconds: what a client of a test takes in the place of time.sleep()."""
        if self._speed <= 0:
            self.advance(seconds)
        else:
            time.sleep(seconds / self._speed)

    def timestamp(self, at_s: float | None = None) -> str:
        """A point of BMC time as Redfish writes it."""
        seconds = self._epoch_s + (self.now_s() if at_s is None else at_s)
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
