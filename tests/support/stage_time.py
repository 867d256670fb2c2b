"""A clock that a drill moves."""

from __future__ import annotations

START_MONO_S = 100_000.0


class JumpClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = START_MONO_S

    def mono_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return 1_800_000_000.0 + self.now_s

    def boot_id(self) -> str:
        return "b-1"
