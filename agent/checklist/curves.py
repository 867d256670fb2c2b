"""The curves of a run, kept while its steps go on; long ones are thinned, never cut off."""

from __future__ import annotations

import threading

from agent.checklist.record import Curve

#: Points of one curve; at twice as many every second one is dropped.
MOST_POINTS = 1_000
#: Curves of one run: quantities times subjects.
MOST_CURVES = 1_000


class CurveBook:
    """Curves by step, quantity and subject. `keep` may be called from the thread of a measured test."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self._curves: dict[tuple[str, str, str, str], list[tuple[float, float]]] = {}
        self._lock = threading.Lock()

    def restore(self, curves: list[Curve]) -> None:
        """Begin with the curves of a run that is resumed."""
        for curve in curves:
            self._curves[curve.step, curve.name, curve.subject, curve.unit] = list(curve.points)

    def drop(self, step: str) -> None:
        """Forget the curves of a step that is done again."""
        with self._lock:
            self._curves = {key: points for key, points in self._curves.items() if key[0] != step}

    def keep(self, step: str, name: str, subject: str, unit: str, at: tuple[float, float]) -> None:
        """One point: seconds since the run began, and the value."""
        key = (step, name, subject, unit)
        with self._lock:
            if key not in self._curves and len(self._curves) >= MOST_CURVES:
                return
            points = self._curves.setdefault(key, [])
            points.append(at)
            if len(points) >= 2 * MOST_POINTS:
                self._curves[key] = points[:-1:2] + points[-1:]

    def curves(self) -> list[Curve]:
        """All of them as a record has them."""
        with self._lock:
            return [
                Curve(step=step, name=name, subject=subject, unit=unit, points=list(points))
                for (step, name, subject, unit), points in self._curves.items()
            ]
