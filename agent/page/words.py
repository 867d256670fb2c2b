"""Words, marks and times as the page shows them. Pure."""

from __future__ import annotations

import time

from agent.model import GateState, Verdict

#: Of a whole state: good, soft (look at it), bad, wait (goes on by itself), none.
Tone = str
GOOD, SOFT, BAD, WAIT, NONE = "good", "soft", "bad", "wait", "none"
#: A state is never told by its colour alone.
MARKS = {GOOD: "✔", SOFT: "▲", BAD: "✖", WAIT: "…", NONE: "·"}
TONE_OF_STATE = {
    GateState.SERVING.value: GOOD,
    GateState.MEMBER.value: GOOD,
    GateState.DEGRADED.value: SOFT,
    GateState.DRAINING.value: SOFT,
    GateState.STOPPED.value: SOFT,
    GateState.MAINTENANCE.value: SOFT,
    GateState.BOOTING.value: WAIT,
    GateState.PREFLIGHT.value: WAIT,
    GateState.LAUNCHING.value: WAIT,
    GateState.WARMING.value: WAIT,
    GateState.FAILED.value: BAD,
    GateState.QUARANTINED.value: BAD,
}
TONE_OF_VERDICT = {
    Verdict.PASS.value: GOOD,
    Verdict.WARN.value: SOFT,
    Verdict.UNKNOWN.value: SOFT,
    Verdict.FAIL.value: BAD,
    Verdict.SKIP.value: NONE,
}
#: A question mark for what is not known: missing evidence is no warning.
UNKNOWN_MARK = "?"
MOST_CHARS = 280
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def mark_of(verdict: str) -> str:
    """The sign beside a verdict's word."""
    return UNKNOWN_MARK if verdict == Verdict.UNKNOWN else MARKS[TONE_OF_VERDICT.get(verdict, NONE)]


def lasted(seconds: float) -> str:
    """A length of time for the eye: coarser the longer it is."""
    whole = max(0, int(seconds))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"


def clock(wall_s: float, now_wall_s: float) -> str:
    """A time of the wall clock in UTC; with its date when that is not today's."""
    same_day = time.gmtime(wall_s)[:3] == time.gmtime(now_wall_s)[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M", time.gmtime(wall_s))


def cut(text: object, most: int = MOST_CHARS) -> str:
    """A text with an end: /status has all of it."""
    said = str(text)
    return said if len(said) <= most else f"{said[:most]}…"


def number(value: float) -> str:
    """A measured value: no more digits than a sensor has."""
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}".removesuffix(".0")
