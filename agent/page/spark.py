"""Small curves of the last ten minutes as SVG paths. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.page.words import number
from agent.recent_history import LENGTH_S, PERIOD_S

WIDTH, HEIGHT = 120, 24
_TOP, _BOTTOM = 2, HEIGHT - 2
#: Samples farther apart than this are not joined: nothing is known between them.
_GAP_S = 3 * PERIOD_S


@dataclass(frozen=True, slots=True)
class Curve:
    """What to draw, and the same in words for those who do not see it."""

    path: str
    label: str
    span: str


@dataclass(frozen=True, slots=True)
class Look:
    """How a quantity is drawn.

    `least` is the smallest difference that fills the height: noise stays flat. `keep` picks the value of a
    stretch that is drawn as one point: the highest temperature, the lowest clock.
    """

    what: str
    unit: str
    least: float
    keep: Callable[[Sequence[float]], float] = max


def curve(
    times_s: Sequence[float], values: Sequence[float | None], look: Look, step: int = 1
) -> Curve | None:
    """A curve of at most WIDTH / `step` points; None where nothing is known.

    `times_s` are seconds before the newest sample (0 or less), one for each value.
    """
    known = [(at_s, value) for at_s, value in zip(times_s, values, strict=True) if value is not None]
    if not known:
        return None
    low, high = min(value for _, value in known), max(value for _, value in known)
    middle, half = (low + high) / 2, max(high - low, look.least) / 2
    points = [
        replace(point, y=round(_BOTTOM - (point.y - middle + half) / (2 * half) * (_BOTTOM - _TOP)))
        for point in _thinned(known, look, step)
    ]
    newest = values[-1]
    now = "now unknown" if newest is None else f"now {number(newest)} {look.unit}"
    span = f"{number(low)} to {number(high)} {look.unit}" if low != high else f"{number(low)} {look.unit}"
    return Curve(_path(points), f"{look.what}, last 10 minutes: {span}, {now}", span)


@dataclass(frozen=True, slots=True)
class _Point:
    """One point for a stretch of samples and when these were taken; `y` is a value, then a height."""

    first_s: float
    last_s: float
    x: int
    y: float


def _thinned(known: Sequence[tuple[float, float]], look: Look, step: int) -> list[_Point]:
    """One point for each `step` units of width."""
    stretches: dict[int, list[tuple[float, float]]] = {}
    for at_s, value in known:
        x = round((1 + at_s / LENGTH_S) * WIDTH)
        stretches.setdefault(x // step * step, []).append((at_s, value))
    return [
        _Point(stretch[0][0], stretch[-1][0], x, look.keep([value for _, value in stretch]))
        for x, stretch in stretches.items()
    ]


def _path(points: Sequence[_Point]) -> str:
    """Relative steps: short, because a page has dozens of curves. A point alone is a dot."""
    words: list[str] = []
    before: _Point | None = None
    for point in points:
        dx, dy = (point.x - before.x, round(point.y - before.y)) if before else (0, 0)
        if before is None or point.first_s - before.last_s > _GAP_S:
            words.append(f"M{point.x} {point.y}h0")
        elif dy == 0:
            words.append(f"h{dx}")
        else:
            words.append(f"l{dx} {dy}" if dy > 0 else f"l{dx}{dy}")
        before = point
    return "".join(words)
