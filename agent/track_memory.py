"""What an agent that restarts on the same boot remembers of a subject beside its last result.

Fails closed: times from the future, a boot or a profile that is not this one, and anything garbled are
dropped. A run of PASSes is never taken over, so a PASS from before the restart counts neither as fresh nor
towards `clear_for`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.class_run import LADDER, ClassRun
from agent.errors import ParseError
from agent.hysteresis import Confirmation
from agent.model import Result, Verdict

#: More readings than this in one run say nothing more.
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SubjectMemory:
    """Since when a subject fails or is silent (monotonic seconds), and by which profile it was judged."""

    profile_hash: str
    failed: bool = False
    drift: bool = False
    fail_since_mono_s: float | None = None
    fail_readings: int = 0
    unknown_since_mono_s: float | None = None
    run: ClassRun = field(default_factory=ClassRun)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "profile_hash": self.profile_hash,
            "failed": self.failed,
            "drift": self.drift,
            "fail_since_mono_s": self.fail_since_mono_s,
            "fail_readings": self.fail_readings,
            "unknown_since_mono_s": self.unknown_since_mono_s,
            "run_since_mono_s": list(self.run.since_mono_s),
            "run_readings": list(self.run.readings),
        }

    @classmethod
    def of(
        cls, state: Confirmation | None, run: ClassRun, profile_hash: str, *, drift: bool
    ) -> SubjectMemory:
        """What is worth remembering of a subject."""
        if state is None:
            return cls(profile_hash)
        return cls(
            profile_hash,
            failed=state.failed,
            drift=drift,
            fail_since_mono_s=state.fail_since_mono_s,
            fail_readings=state.fail_readings,
            unknown_since_mono_s=state.unknown_since_mono_s,
            run=run,
        )

    def confirmation(self, result: Result, *, fresh: bool) -> Confirmation:
        """The state to go on from; a run of FAILs goes on only while its last reading is `fresh`."""
        silent = result.raw_verdict is Verdict.UNKNOWN
        return Confirmation(
            result.verdict if not self.drift else Verdict.FAIL,
            result.raw_verdict,
            fail_since_mono_s=self.fail_since_mono_s if fresh else None,
            fail_readings=self.fail_readings if fresh else 0,
            unknown_since_mono_s=self.unknown_since_mono_s if silent else None,
            failed=self.failed or result.verdict is Verdict.FAIL,
        )


def memory_from_dict(data: object, now_mono_s: float) -> SubjectMemory | None:
    """What `to_dict` wrote, None for nothing. Raises ParseError for garbage and for times to come."""
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise ParseError("not a stored memory")
    try:
        since = tuple(_past(value, now_mono_s) for value in _list(data["run_since_mono_s"]))
        readings = tuple(_count(value) for value in _list(data["run_readings"]))
        if len(since) != len(readings) or len(since) > len(LADDER):
            raise ParseError("a stored run of readings does not fit together")
        return SubjectMemory(
            str(data["profile_hash"]),
            failed=data["failed"] is True,
            drift=data["drift"] is True,
            fail_since_mono_s=_maybe_past(data["fail_since_mono_s"], now_mono_s),
            fail_readings=_count(data["fail_readings"]),
            unknown_since_mono_s=_maybe_past(data["unknown_since_mono_s"], now_mono_s),
            run=ClassRun(since, readings),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as cause:
        raise ParseError(f"not a stored memory: {type(cause).__name__}: {cause}") from cause


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ParseError("a stored run of readings is no list")
    return value


def _past(value: object, now_mono_s: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParseError("a stored time is no number")
    if value > now_mono_s:
        raise ParseError("a stored time is yet to come")
    return float(value)


def _maybe_past(value: object, now_mono_s: float) -> float | None:
    return None if value is None else _past(value, now_mono_s)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise ParseError("a stored number of readings is no count")
    return value
