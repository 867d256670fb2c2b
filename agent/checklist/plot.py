"""One plot as inline SVG: a quantity over time, a line for each subject, limits dashed (pure).

Lines differ in colour and dashes, so that they can be told apart on paper and by people who see few colours;
each is named at its end. Classes, not colours, are in the SVG: the page has them for light, dark and print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from agent.checklist.plot_axes import Axis, time_axis, value_axis
from agent.checklist.plot_thin import Point, stretches

WIDTH, HEIGHT = 480, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 74, 22, 40
_INNER_W, _INNER_H = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
#: Lines of one plot; the page has this many styles `s0`, `s1`, ...
STYLES = 8
MOST_LINES = 16
_LABEL_PX = 12.5
_LABEL_CHARS = 10


@dataclass(frozen=True, slots=True)
class Line:
    """One subject: points are (seconds, value), sorted by time."""

    subject: str
    points: Sequence[Point]
    #: A line that was found bad is drawn thicker than the others.
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A value that the lines were held against, in the plot's unit, and how to name it."""

    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """What one plot shows; `key` is its id in the page."""

    key: str
    title: str
    unit: str
    lines: Sequence[Line]
    limits: Sequence[Limit] = ()


def svg(plot: Plot, description: str) -> str:
    """The plot as an `svg` element with title and description for those who cannot see it."""
    points = [point for line in plot.lines for point in line.points]
    values = [value for _, value in points] + [limit.value for limit in plot.limits]
    times = time_axis(min(point[0] for point in points), max(point[0] for point in points))
    heights = value_axis(min(values), max(values), plot.unit)
    root = Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "class": "plot"})
    root.set("aria-labelledby", f"{plot.key}-t {plot.key}-d")
    SubElement(root, "title", id=f"{plot.key}-t").text = plot.title
    SubElement(root, "desc", id=f"{plot.key}-d").text = description
    _draw_axes(root, times, heights)
    _draw_limits(root, plot.limits, heights)
    for index, line in enumerate(plot.lines):
        _draw_line(root, line, style(index, line.bad), times, heights)
    _draw_labels(root, plot.lines, heights)
    return tostring(root, encoding="unicode")


def style(index: int, bad: bool = False) -> str:
    """The classes of the line with this number: colours come again with thinner lines."""
    return f"line s{index % STYLES}{' again' if index >= STYLES else ''}{' bad' if bad else ''}"


def _x(times: Axis, seconds: float) -> float:
    return _LEFT + times.share(seconds) * _INNER_W


def _y(heights: Axis, value: float) -> float:
    return _TOP + (1 - heights.share(value)) * _INNER_H


def _text(root: Element, x: float, y: float, text: str, **attributes: str) -> None:
    SubElement(root, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **attributes}).text = text


def _draw_axes(root: Element, times: Axis, heights: Axis) -> None:
    right, foot = _LEFT + _INNER_W, _TOP + _INNER_H
    for value, text in heights.ticks:
        y = _y(heights, value)
        SubElement(root, "path", {"class": "grid", "d": f"M{_LEFT} {y:.1f}H{right}"})
        _text(root, _LEFT - 6, y + 4, text, **{"text-anchor": "end"})
    for seconds, text in times.ticks:
        x = _x(times, seconds)
        SubElement(root, "path", {"class": "tick", "d": f"M{x:.1f} {foot}v5"})
        _text(root, x, foot + 18, text, **{"text-anchor": "middle"})
    SubElement(root, "path", {"class": "axis", "d": f"M{_LEFT} {foot}H{right}"})
    _text(root, 2, 13, heights.unit, **{"class": "unit"})
    _text(
        root, right, foot + 34, f"{times.unit} since the run began", **{"text-anchor": "end", "class": "unit"}
    )


def _draw_limits(root: Element, limits: Sequence[Limit], heights: Axis) -> None:
    for limit in limits:
        y = _y(heights, limit.value)
        SubElement(root, "path", {"class": "limit", "d": f"M{_LEFT} {y:.1f}h{_INNER_W}"})
        # Above the line, but below it where the plot ends.
        at = y - 4 if y > _TOP + 12 else y + 13
        _text(root, _LEFT + 4, at, limit.text, **{"class": "limit-text"})


def _draw_line(root: Element, line: Line, styled: str, times: Axis, heights: Axis) -> None:
    path = []
    for part in stretches(line.points):
        spots = [f"{_x(times, seconds):.1f} {_y(heights, value):.1f}" for seconds, value in part]
        # A point alone: a line of no length with a round end is a dot.
        path.append("M" + "L".join(spots if len(spots) > 1 else spots * 2))
    if path:
        SubElement(root, "path", {"class": styled, "d": "".join(path)})


def _draw_labels(root: Element, lines: Sequence[Line], heights: Axis) -> None:
    """Each subject at the end of its line, moved apart where lines end close together."""
    wanted = sorted(
        (_y(heights, line.points[-1][1]), index) for index, line in enumerate(lines) if line.points
    )
    for (end_y, index), y in zip(wanted, spread([y for y, _ in wanted]), strict=True):
        x, subject = _LEFT + _INNER_W, lines[index].subject
        SubElement(
            root, "path", {"class": f"lead {style(index)}", "d": f"M{x + 2} {end_y:.1f}L{x + 12} {y:.1f}"}
        )
        shown = subject if len(subject) <= _LABEL_CHARS else f"{subject[: _LABEL_CHARS - 1]}…"
        _text(root, x + 15, y + 4, shown, **{"class": f"name {style(index).removeprefix('line ')}"})


def spread(wanted: Sequence[float]) -> list[float]:
    """Heights, sorted from the top, moved as little as it takes for labels to fit into the plot."""
    floor = float(_TOP + _INNER_H)
    placed: list[float] = []
    for y in wanted:
        placed.append(max(y, placed[-1] + _LABEL_PX) if placed else max(y, float(_TOP)))
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], floor)
        floor = placed[index] - _LABEL_PX
    return placed
