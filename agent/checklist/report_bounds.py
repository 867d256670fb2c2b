"""A record made fit to be shown: texts clean and cut, long lists and curves shortened, and what was left out.

Reports must stay small enough to be mailed however large a record has grown; the record itself, `run.json`,
keeps everything. A curve that is shortened keeps the lowest and the highest value of every stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from agent.checklist.plot_thin import thin
from agent.checklist.record import Curve, RunRecord
from agent.checklist.report_text import clean

Model = TypeVar("Model", bound=BaseModel)
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a record is shown: characters of a text, rows of a list, points of all curves."""

    text_chars: int
    rows: int
    steps: int
    curves: int
    points: int


#: Tried one after the other until a report is small enough.
LEVELS = (
    Bounds(text_chars=4000, rows=400, steps=400, curves=400, points=40_000),
    Bounds(text_chars=600, rows=100, steps=200, curves=200, points=16_000),
    Bounds(text_chars=120, rows=10, steps=100, curves=48, points=6_000),
    Bounds(text_chars=30, rows=2, steps=100, curves=16, points=1_000),
)
#: Fewer points of a curve would not show its course.
_FEWEST_POINTS = 20
#: What lies beyond (or is no number) is no reading, and no axis reaches there.
FARTHEST = 1e100
#: More would be finer than a plot is wide.
_MOST_POINTS = 600


def bounded(record: RunRecord, bounds: Bounds) -> tuple[RunRecord, tuple[str, ...]]:
    """The record within bounds, and a line for each thing that is not in it."""
    notes: list[str] = []
    short = record.model_copy(
        update={
            "steps": _first(record.steps, bounds.steps, "steps", notes),
            "curves": _curves(record.curves, bounds, notes),
        }
    )
    shown: RunRecord = _shown(short, bounds, "", notes)
    return shown, tuple(notes)


def _shown(model: Model, bounds: Bounds, where: str, notes: list[str]) -> Model:
    """A model with every text clean and every list short; curves have their own rule."""
    fields: dict[str, Any] = {}
    for name, value in model:
        if isinstance(value, str):
            kept: Any = clean(value, bounds.text_chars) if type(value) is str else value
        elif isinstance(value, dict):
            rows = _first(list(value.items()), bounds.rows, f"{where}{name}", notes)
            kept = {clean(key, bounds.text_chars): _item(item, bounds, notes) for key, item in rows}
        elif isinstance(value, BaseModel):
            kept = _shown(value, bounds, where, notes)
        elif isinstance(value, list) and name != "points":
            rows = (
                value if name in ("steps", "curves") else _first(value, bounds.rows, f"{where}{name}", notes)
            )
            kept = [_item(row, bounds, notes) for row in rows]
        else:
            kept = value
        fields[name] = kept
    return model.model_copy(update=fields)


def _item(row: Any, bounds: Bounds, notes: list[str]) -> Any:
    if isinstance(row, BaseModel):
        title = getattr(row, "title", "")
        return _shown(row, bounds, f"{clean(title, 80)}: " if title else "", notes)
    return clean(row, bounds.text_chars) if isinstance(row, str) else row


def _first(rows: Sequence[Row], most: int, what: str, notes: list[str]) -> list[Row]:
    if len(rows) > most:
        notes.append(f"{what}: {most} of {len(rows)} are shown; run.json has all")
    return list(rows[:most])


def _curves(curves: Sequence[Curve], bounds: Bounds, notes: list[str]) -> list[Curve]:
    """The curves with as many points each as their number allows."""
    kept = _first(curves, bounds.curves, "curves", notes)
    share = bounds.points // max(1, len(kept))
    most = min(_MOST_POINTS, max(_FEWEST_POINTS, share))
    thinned = [_curve(curve, most) for curve in kept]
    longest = max((len(curve.points) for curve in kept), default=0)
    if longest > most:
        notes.append(
            f"curves of up to {longest} points have at most {most} here, lowest and highest values kept; "
            "run.json has all"
        )
    return thinned


def _curve(curve: Curve, most: int) -> Curve:
    points = sorted(point for point in curve.points if all(abs(number) < FARTHEST for number in point))
    return curve.model_copy(update={"points": thin(points, most)})
