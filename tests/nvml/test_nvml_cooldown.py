"""How long what failed is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.errors import SourceTimeout, SourceUnavailable
from agent.sources.nvml_cooldown import MAX_REST_S, Cooldown

GONE = SourceUnavailable("the process was ended by SIGSEGV")


@pytest.fixture
def cooldown(clock: Callable[[], float]) -> Cooldown:
    return Cooldown(clock)


def rest_s(cooldown: Cooldown, clock: Callable[[], float], name: str) -> float:
    began_s, step_s = clock.now_s, 0.5
    while cooldown.why_not(name) is not None:
        clock.now_s += step_s
    return clock.now_s - began_s


def test_rests_double_up_to_a_limit(cooldown: Cooldown, clock: Callable[[], float]) -> None:
    rests_s = []
    for _ in range(12):
        cooldown.failed("GPU-a", GONE, 1.0)
        rests_s.append(rest_s(cooldown, clock, "GPU-a"))
    assert rests_s[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert rests_s[9:] == [MAX_REST_S] * 3


def test_what_works_again_starts_from_the_beginning(cooldown: Cooldown, clock: Callable[[], float]) -> None:
    for _ in range(3):
        cooldown.failed("GPU-a", GONE, 1.0)
    cooldown.worked("GPU-a")
    assert cooldown.why_not("GPU-a") is None
    cooldown.failed("GPU-a", GONE, 1.0)
    assert rest_s(cooldown, clock, "GPU-a") == 1


def test_names_rest_by_themselves(cooldown: Cooldown) -> None:
    cooldown.failed("GPU-a", GONE, 1.0)
    assert cooldown.why_not("GPU-b") is None
    cooldown.worked("GPU-b")
    assert cooldown.why_not("GPU-a") is not None


def test_the_error_is_told_again_with_the_time_left(cooldown: Cooldown, clock: Callable[[], float]) -> None:
    cooldown.failed("GPU-a", SourceTimeout("no answer within 2 s"), 10.0)
    clock.now_s += 4
    error = cooldown.why_not("GPU-a")
    assert isinstance(error, SourceTimeout)
    assert str(error) == "no answer within 2 s; next try in 6 s"
