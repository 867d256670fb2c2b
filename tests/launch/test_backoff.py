"""Waits between restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.launch.backoff import after_crash
from agent.node_profile import Backoff


def test_waits_grow_up_to_the_longest() -> None:
    policy = Backoff(first_s=2, factor=3, max_s=50, jitter=0, crashes=10, window_s=3600)
    crashes: tuple[float, ...] = ()
    waits = []
    for now in range(5):
        restart = after_crash(policy, crashes, float(now), 0.5)
        crashes = restart.crashes_mono_s
        waits.append(restart.wait_s)
    assert waits == [2, 6, 18, 50, 50]


def test_the_last_allowed_crash_ends_it() -> None:
    policy = Backoff(crashes=3, window_s=100)
    assert after_crash(policy, (10.0,), 20.0, 0.5).wait_s is not None
    assert after_crash(policy, (10.0, 20.0), 30.0, 0.5).wait_s is None


def test_old_crashes_are_forgotten() -> None:
    policy = Backoff(first_s=2, factor=2, jitter=0, crashes=3, window_s=100)
    restart = after_crash(policy, (10.0, 20.0), 200.0, 0.5)
    assert restart.wait_s == 2
    assert restart.crashes_mono_s == (200.0,)


@pytest.mark.parametrize(("share", "wait_s"), [(0.0, 9.0), (0.5, 10.0), (0.999999, 11.0)])
def test_jitter_goes_both_ways(share: float, wait_s: float) -> None:
    policy = Backoff(first_s=10, jitter=0.1)
    assert after_crash(policy, (), 0.0, share).wait_s == pytest.approx(wait_s, abs=0.01)


@given(
    first_s=st.floats(0, 1e3),
    factor=st.floats(1, 1e3),
    max_s=st.floats(0, 1e4),
    jitter=st.floats(0, 1),
    earlier=st.integers(0, 100),
    share=st.floats(0, 0.999),
)
def test_a_wait_is_never_negative_nor_beyond_its_bound(
    first_s: float, factor: float, max_s: float, jitter: float, earlier: int, share: float
) -> None:
    policy = Backoff(first_s=first_s, factor=factor, max_s=max_s, jitter=jitter, crashes=1000, window_s=1e6)
    wait_s = after_crash(policy, tuple(float(i) for i in range(earlier)), 1000.0, share).wait_s
    assert wait_s is not None
    assert 0 <= wait_s <= max_s * (1 + jitter)
