"""Which plots a record gives: one for each quantity of a step, all its subjects in it, limits drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.checklist.plot import MOST_LINES, Limit, Line, Plot, style, svg
from agent.checklist.record import Curve, RunRecord, Value
from agent.checklist.report_bounds import FARTHEST
from agent.checklist.report_text import number
from agent.model import Verdict
from agent.rows import natural

_BOUND = re.compile(
    r"(?:<=?|>=?|≤|≥|=|at (?:most|least)|below|above|under|over)\s*"
    r"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)
_MOST_LIMITS = 3
_WORDS = (
    "GPU",
    "SM",
    "NIC",
    "CPU",
    "PCIe",
    "NVLink",
    "HBM",
    "NCCL",
    "ECC",
    "CNP",
    "PFC",
    "ECN",
    "BMC",
    "RoCE",
)
_WRITTEN = {word.lower(): word for word in _WORDS}
_LIMIT_CHARS = 34


@dataclass(frozen=True, slots=True)
class Legend:
    """One subject of a plot in figures: what a person reads who does not see the lines."""

    style: str
    subject: str
    range: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot, drawn, with its legend."""

    title: str
    svg: str
    legend: tuple[Legend, ...]


def figures(record: RunRecord, at: int) -> list[Figure]:
    """The plots of the step at this place (0 is the first), in the order in which its curves begin."""
    step = record.steps[at]
    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in record.curves:
        if curve.step == step.id and curve.points:
            groups.setdefault((curve.name, curve.unit), []).append(curve)
    made = []
    for group, ((name, unit), curves) in enumerate(groups.items()):
        curves.sort(key=lambda curve: natural(curve.subject))
        values = [value for value in step.values if value.unit == unit and value.name.startswith(name)]
        bad = {value.subject for value in values if value.verdict is Verdict.FAIL}
        title = f"{quantity(name)}{f' ({unit})' if unit else ''}"
        for first in range(0, len(curves), MOST_LINES):
            part = curves[first : first + MOST_LINES]
            lines = [Line(curve.subject, curve.points, curve.subject in bad) for curve in part]
            key, of = f"p{at + 1}-{group + 1}-{first}", _part(first, curves)
            made.append(_figure(Plot(key, title + of, unit, lines, _limits(values))))
    return made


def quantity(name: str) -> str:
    """The name of a quantity as people write it: `gpu_sm_clock` is `GPU SM clock`."""
    words = name.replace(".", " ").replace("_", " ").split()
    told = [_WRITTEN.get(word, word) for word in words] or [name]
    return told[0][:1].upper() + " ".join(told)[1:]


def _part(first: int, curves: Sequence[Curve]) -> str:
    last = min(first + MOST_LINES, len(curves))
    return f", {first + 1} to {last} of {len(curves)}" if len(curves) > MOST_LINES else ""


def _figure(plot: Plot) -> Figure:
    legend = tuple(
        Legend(style(index, line.bad), line.subject, _range(line, plot.unit))
        for index, line in enumerate(plot.lines)
    )
    told = [f"{line.subject} {line.range}" for line in legend] + [limit.text for limit in plot.limits]
    return Figure(plot.title, svg(plot, "; ".join(told)), legend)


def _range(line: Line, unit: str) -> str:
    values = [value for _, value in line.points]
    low, high = number(min(values), 4), number(max(values), 4)
    return f"{low if low == high else f'{low} to {high}'} {unit}".rstrip()


def _limits(values: Iterable[Value]) -> tuple[Limit, ...]:
    """What the figures of a quantity were held against, each bound once."""
    told: dict[float, Limit] = {}
    for value in values:
        for found in _BOUND.finditer(value.expected or ""):
            if not abs(float(found.group(1))) < FARTHEST:
                continue
            text = f"expected {value.expected}"
            shown = text if len(text) <= _LIMIT_CHARS else f"{text[: _LIMIT_CHARS - 1]}…"
            told.setdefault(float(found.group(1)), Limit(float(found.group(1)), shown))
    return tuple(told.values())[:_MOST_LIMITS]
