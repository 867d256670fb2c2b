"""How long something that hung is left alone."""

from __future__ import annotations

import pytest

from agent.errors import SourceTimeout, SourceUnavailable
from agent.sources.nvml_cooldown import MAX_REST_S, Cooldown


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cooldown(clock: Clock) -> Cooldown:
    return Cooldown(clock)


def test_rests_double_up_to_a_limit(cooldown: Cooldown, clock: Clock) -> None:
    rests = []
    for _ in range(40):
        cooldown.failed("gpu", "power", SourceTimeout("hung"), 10.0)
        began_s = clock.now_s
        while cooldown.why_not("gpu") is not None:
            clock.now_s += 5.0
        rests.append(clock.now_s - began_s)
    assert rests[:6] == [10, 20, 40, 80, 160, 300]
    assert set(rests[5:]) == {MAX_REST_S}


def test_the_error_is_the_one_that_happened(cooldown: Cooldown) -> None:
    cooldown.failed("gpu", "power", SourceUnavailable("crashed"), 10.0)
    error = cooldown.why_not("gpu")
    assert type(error) is SourceUnavailable
    assert str(error) == "crashed; next try in 10 s"
    assert cooldown.why_not("other") is None


def test_only_the_call_that_failed_ends_it(cooldown: Cooldown, clock: Clock) -> None:
    cooldown.failed("gpu", "power", SourceTimeout("hung"), 10.0)
    clock.now_s = 11.0
    cooldown.worked("gpu", "thermal")
    cooldown.failed("gpu", "power", SourceTimeout("hung"), 10.0)
    clock.now_s = 25.0
    assert cooldown.why_not("gpu") is not None, "power hung twice in a row: 20 s"
    clock.now_s = 32.0
    cooldown.worked("gpu", "power")
    cooldown.failed("gpu", "power", SourceTimeout("hung"), 10.0)
    clock.now_s = 43.0
    assert cooldown.why_not("gpu") is None, "power had worked in between: 10 s"
