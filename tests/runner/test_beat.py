"""The beat of checks: those that share readings keep step, others and nodes do not, and no run is late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.check_plan import BEAT_S, CLOSE_S, SKIPPED_SHARE, beat_of, next_beat_s

PERIODS_S = st.sampled_from((1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)) | st.floats(0.05, 4000)


def test_checks_of_nvml_have_one_beat_and_others_have_others() -> None:
    assert beat_of("n1", "gpu.lost") == beat_of("n1", "gpu.throttle")
    assert 0 < abs(beat_of("n1", "roce.oos") - beat_of("n1", "roce.errors")) <= CLOSE_S
    beats = {beat_of(node, check) for node in ("n1", "n2") for check in ("gpu.lost", "nic.port", "roce.oos")}
    assert len(beats) == 6
    assert all(0 <= beat <= BEAT_S + CLOSE_S for beat in beats)


@given(st.floats(0, BEAT_S), PERIODS_S, st.floats(0, 1e7))
def test_the_next_run_comes_within_a_period_and_a_tenth(beat_s: float, period_s: float, now_s: float) -> None:
    wait_s = next_beat_s(beat_s, period_s, now_s) - now_s
    assert SKIPPED_SHARE * period_s - 1e-6 <= wait_s <= (1 + SKIPPED_SHARE) * period_s + 1e-6


@given(st.floats(0, BEAT_S), st.integers(0, 10_000_000))
def test_checks_of_one_beat_meet_where_their_periods_do(beat_s: float, started_s: int) -> None:
    slow = next_beat_s(beat_s, 10.0, started_s)
    assert abs(next_beat_s(beat_s, 2.0, slow - 1.5) - slow) < 1e-6
