"""How long to wait after a crash, and when to stop trying (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from agent.node_profile import Backoff


@dataclass(frozen=True, slots=True)
class Restart:
    """What follows a crash: the wait before the next start, or None when there were too many crashes."""

    wait_s: float | None
    crashes_mono_s: tuple[float, ...]


def after_crash(
    policy: Backoff, earlier_mono_s: tuple[float, ...], now_mono_s: float, random_share: float
) -> Restart:
    """Count this crash with the earlier ones of the window and choose the wait.

    `random_share` in [0, 1) moves the wait within +-`jitter` of itself, so that engines which one cause
    brought down together do not load their weights from one store together.
    """
    window = tuple(t for t in earlier_mono_s if now_mono_s - t < policy.window_s)
    crashes = (*window, now_mono_s)
    if len(crashes) >= policy.crashes:
        return Restart(None, crashes)
    return Restart(wait_after(policy, len(crashes), random_share), crashes)


def wait_after(policy: Backoff, failures: int, random_share: float) -> float:
    """Seconds to wait after so many failures in a row (1 or more)."""
    exponent = min(failures - 1, 64)  # far beyond any max_s; keeps the power finite
    wait_s = min(policy.first_s * policy.factor**exponent, policy.max_s)
    return wait_s * (1 + policy.jitter * (2 * random_share - 1))
