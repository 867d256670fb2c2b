"""Small curves of the last ten minutes as SVG paths. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
        (at_s, x, round(_BOTTOM - (value - middle + half) / (2 * half) * (_BOTTOM - _TOP)))
        for at_s, x, value in _thinned(known, look, step)
    ]
    newest = values[-1]
    now = "now unknown" if newest is None else f"now {number(newest)} {look.unit}"
    span = f"{number(low)} to {number(high)} {look.unit}" if low != high else f"{number(low)} {look.unit}"
    return Curve(_path(points), f"{look.what}, last 10 minutes: {span}, {now}", span)


def _thinned(known: Sequence[tuple[float, float]], look: Look, step: int) -> list[tuple[float, int, float]]:
    """One value for each `step` units of width: when, x and value."""
    stretches: dict[int, list[tuple[float, float]]] = {}
    for at_s, value in known:
        x = round((1 + at_s / LENGTH_S) * WIDTH)
        stretches.setdefault(x // step * step, []).append((at_s, value))
    return [
        (stretch[-1][0], x, look.keep([value for _, value in stretch])) for x, stretch in stretches.items()
    ]


def _path(points: Sequence[tuple[float, int, int]]) -> str:
    """Relative steps: short, because a page has dozens of curves."""
    words: list[str] = []
    before: tuple[float, int, int] | None = None
    for at_s, x, y in points:
        if before is None or at_s - before[0] > _GAP_S:
            words.append(f"M{x} {y}h1" if before is None else f"h1M{x} {y}h1")
            before = (at_s, x + 1, y)
            continue
        dx, dy = x - before[1], y - before[2]
        words.append(f"h{dx}" if dy == 0 else f"l{dx} {dy}" if dy > 0 else f"l{dx}{dy}")
        before = (at_s, x, y)
    return "".join(words)
