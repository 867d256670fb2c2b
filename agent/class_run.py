"""How long readings have failed with at least each serving class, pure.

A fault that grows worse (a power brake becomes a thermal slowdown) closes a gate only when the worse class
itself has lasted: one bad sample of a hard class on top of a confirmed soft one closes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.model import ServingClass

#: From what only tells to what closes at once.
LADDER = (ServingClass.INFO, ServingClass.SOFT, ServingClass.HARD, ServingClass.IMMEDIATE)


@dataclass(frozen=True, slots=True)
class ClassRun:
    """For each rung of the ladder: since when all readings have been at least that bad, and how many."""

    since_mono_s: tuple[float, ...] = ()
    readings: tuple[int, ...] = ()

    def next(self, serving_class: ServingClass, now_mono_s: float) -> ClassRun:
        """The runs after one more FAIL of this class."""
        height = LADDER.index(serving_class) + 1
        kept = min(height, len(self.readings))
        since = self.since_mono_s[:kept] + (now_mono_s,) * (height - kept)
        readings = tuple(count + 1 for count in self.readings[:kept]) + (1,) * (height - kept)
        return ClassRun(since, readings)

    def lasted(self, fail_for_s: float, now_mono_s: float) -> ServingClass | None:
        """The worst class that two readings or more have shown for `fail_for_s`; None for none yet."""
        for rung in range(len(self.readings) - 1, -1, -1):
            if self.readings[rung] >= 2 and now_mono_s - self.since_mono_s[rung] >= fail_for_s:
                return LADDER[rung]
        return None

    def due_mono_s(self, fail_for_s: float) -> float | None:
        """When one more such reading would make its class last; None when nothing fails."""
        return self.since_mono_s[-1] + fail_for_s if self.since_mono_s else None


def worse(one: ServingClass, other: ServingClass) -> bool:
    """Whether `one` does more to a gate than `other`."""
    return LADDER.index(one) > LADDER.index(other)
