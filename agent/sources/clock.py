"""Clocks: the live one is CLOCK_BOOTTIME, which also counts time asleep (clock_gettime(2)).

https://man7.org/linux/man-pages/man2/clock_gettime.2.html
"""

from __future__ import annotations

import time
from pathlib import Path

from agent.errors import SourceUnavailable


class LiveClock:
    """This machine's time."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Read the boot id under `root`, once: it cannot change while this process lives."""
        self._boot_id_path = root / "proc/sys/kernel/random/boot_id"
        self._boot_id: str | None = None

    def mono_s(self) -> float:
        """Seconds since boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def boot_id(self) -> str:
        """The kernel's boot id. Raises SourceUnavailable when it cannot be read."""
        if self._boot_id is None:
            try:
                self._boot_id = self._boot_id_path.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as cause:
                raise SourceUnavailable(f"cannot read the boot id: {cause}") from cause
        return self._boot_id


class ReplayClock:
    """This machine's time under the boot id of a captured node.

    The monotonic time is the real one and not the captured one, so that it never runs backwards when the
    agent is restarted on the same node folder.
    """

    def __init__(self, boot_id: str) -> None:
        """Answer `boot_id` as the kernel's."""
        self._boot_id = boot_id
        self._real = LiveClock()

    def mono_s(self) -> float:
        """Seconds since this machine's boot."""
        return self._real.mono_s()

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        return self._real.wall_s()

    def boot_id(self) -> str:
        """The captured node's boot id."""
        return self._boot_id
