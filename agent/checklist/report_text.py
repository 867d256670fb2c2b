"""Words of a report: texts made safe to show, times, and the one line that says how a run ended (pure)."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from agent.checklist.record import RunRecord, StepRecord
from agent.model import Verdict

_REPLACEMENT = "\ufffd"
#: What stands where there is nothing to tell.
NONE = "\u2013"
_AT_FAULT = (Verdict.FAIL, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Headline:
    """How a run ended: `tone` is good, soft or bad; `advice` says what to do, one sentence a line."""

    tone: str
    text: str
    advice: tuple[str, ...] = ()


def clean(text: str, most_chars: int) -> str:
    """The text without control characters, halves of surrogates and what XML cannot hold, and cut."""
    shown = text[:most_chars]
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() or char in "\t\n" else _REPLACEMENT for char in shown)
    left = len(text) - most_chars
    return shown if left <= 0 else f"{shown} … ({left} more characters are left out)"


def utc(wall_s: float | None) -> str:
    """A time as people write it, in UTC; a dash for none or one that no calendar has."""
    if wall_s is None:
        return NONE
    try:
        return dt.datetime.fromtimestamp(wall_s, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return NONE


def took(started_wall_s: float | None, ended_wall_s: float | None) -> str:
    """How long something lasted, in the two largest units; a dash where it has no end."""
    if started_wall_s is None or ended_wall_s is None:
        return NONE
    seconds = max(0.0, ended_wall_s - started_wall_s)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def number(value: float, digits: int = 6) -> str:
    """A figure as short as it is exact enough: so many digits that count, more only of whole ones."""
    return f"{value:.0f}" if 1e15 > abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def step_at_fault(record: RunRecord) -> StepRecord | None:
    """The step that stopped the run: the first that failed, else is unknown, else has not ended."""
    for verdict in _AT_FAULT:
        for step in record.steps:
            if step.verdict is verdict:
                return step
    return next((step for step in record.steps if step.verdict is None), None)


def headline(record: RunRecord) -> Headline:
    """The large line of a report. A run without a verdict, or without steps, never reads as passed."""
    total = len(record.steps)
    if record.verdict in (Verdict.PASS, Verdict.WARN):
        return _passed(record, total)
    step = step_at_fault(record)
    at = "before its first step"
    if step is not None:
        at = f"at step {record.steps.index(step) + 1} of {total}: {step.title}"
    if record.verdict is Verdict.FAIL:
        return Headline("bad", f"FAILED {at}", advice(record, step))
    if record.verdict is None:
        word = "STILL RUNNING" if record.ended_wall_s is None else "ENDED WITHOUT A VERDICT"
        return Headline("soft", f"{word}, {at}", advice(record, step))
    return Headline("bad", f"NOT PROVEN, {record.verdict} {at}", advice(record, step))


def _passed(record: RunRecord, total: int) -> Headline:
    """Only as good as its steps: a record that contradicts itself says so."""
    odd = next((step for step in record.steps if step.verdict in (None, *_AT_FAULT)), None)
    if odd is not None or not total:
        what = f"step {odd.title} says {odd.verdict}" if odd is not None else "it has no steps"
        return Headline("bad", f"NOT PROVEN: the run says {record.verdict}, but {what}")
    skipped = sum(step.verdict is Verdict.SKIP for step in record.steps)
    left_out = f", {skipped} not for this node" if skipped else ""
    if record.shortened:
        lines = tuple(f"less than the checklist has: {line}" for line in record.shortened[:3])
        return Headline("soft", f"PASSED, SHORTENED: all {total} steps{left_out}", lines)
    if record.verdict is Verdict.WARN or any(step.verdict is Verdict.WARN for step in record.steps):
        return Headline("soft", f"PASSED WITH WARNINGS: all {total} steps{left_out}", _warnings(record))
    return Headline("good", f"PASSED: all {total} steps{left_out}")


def _warnings(record: RunRecord) -> tuple[str, ...]:
    lines = [f"{step.title}: {step.summary}" for step in record.steps if step.verdict is Verdict.WARN]
    return tuple(lines[:3])


def advice(record: RunRecord, step: StepRecord | None) -> tuple[str, ...]:
    """What to do next: the step's own hint, else those of its findings, and how the run goes on."""
    run = f"nodegate checklist run {record.checklist}"
    if step is None:
        return (f"Run: {run}",)
    again = (
        f"Then go on with: {run} --resume (a new run, without it, where parts or the profile have changed)"
    )
    hints = (
        [step.hint] if step.hint else [found.hint for found in step.findings if found.verdict in _AT_FAULT]
    )
    unique = [hint for hint in dict.fromkeys(hints) if hint]
    if not unique:
        unique = [
            "Mend what the step names below." if step.verdict in _AT_FAULT else "The step has not ended."
        ]
    return (*unique[:3], again)
