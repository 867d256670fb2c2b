"""The rules by which readings become a confirmed verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hysteresis import Confirmation, Timings, due_mono_s, step
from agent.model import Verdict

P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP
HARD = Timings(fail_for_s=3.0, clear_for_s=10.0, unknown_for_s=60.0)


def run(
    readings: list[tuple[float, Verdict]], timings: Timings = HARD, *, serving: bool = True
) -> list[Verdict]:
    """The confirmed verdict after each reading."""
    state: Confirmation | None = None
    verdicts = []
    for now_s, raw in readings:
        state = step(state, raw, timings, now_s, serving=serving)
        verdicts.append(state.verdict)
    return verdicts


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([(0, P), (1, F), (2, P)], [P, P, P]),  # one bad sample closes nothing
        ([(0, P), (1, F), (2, F), (3, F), (4, F)], [P, P, P, P, F]),  # confirmed fail_for after the first
        (
            [(0, P), (1, F), (2, F), (3, P), (4, F), (6.9, F), (7, F)],
            [P, P, P, P, P, P, F],
        ),  # PASS starts anew
        ([(0, P), (1, F), (9, F)], [P, P, F]),  # two readings far apart
        ([(0, P), (1, F), (2, U), (4, F)], [P, P, P, F]),  # UNKNOWN ends no run of FAILs
        ([(0, F), (1, F), (3, F)], [U, U, F]),  # nothing known before: not PASS while it is being confirmed
        ([(0, F), (3, F), (4, P), (13.9, P), (14, P)], [U, F, F, F, P]),  # clears after clear_for of PASS
        ([(0, F), (3, F), (4, P), (9, W), (14, W)], [U, F, F, F, W]),  # WARN clears too
        ([(0, F), (3, F), (4, P), (9, F), (10, P), (19, P), (20, P)], [U, F, F, F, F, F, P]),  # a relapse
        (
            [(0, F), (3, F), (4, P), (9, U), (10, P), (14, P), (20, P)],
            [U, F, F, F, F, F, P],
        ),  # UNKNOWN breaks it
        ([(0, P), (1, U), (60.9, U), (61, U), (62, P)], [P, P, P, U, P]),  # bridged for unknown_for
        ([(0, F), (3, F), (4, U), (64, U), (65, P), (75, P)], [U, F, F, U, F, P]),  # not cleared by a gap
        ([(0, P), (1, W), (2, S)], [P, W, S]),
        ([(0, F), (3, F), (4, S)], [U, F, S]),  # left out by the profile: at once
    ],
)
def test_while_serving(readings: list[tuple[float, Verdict]], expected: list[Verdict]) -> None:
    assert run(readings) == expected


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([(0, F)], [F]),
        ([(0, P), (1, F)], [P, F]),
        ([(0, P), (1, U)], [P, U]),
        ([(0, U), (1, P)], [U, P]),
        ([(0, F), (1, P), (10.9, P), (11, P)], [F, F, F, P]),  # reopening still takes clear_for
        ([(0, F), (1, U)], [F, F]),
    ],
)
def test_before_serving(readings: list[tuple[float, Verdict]], expected: list[Verdict]) -> None:
    assert run(readings, serving=False) == expected


def test_the_immediate_class_counts_at_once() -> None:
    at_once = Timings(fail_for_s=3.0, clear_for_s=0.0, unknown_for_s=60.0, immediate=True)
    assert run([(0, P), (1, F), (2, P)], at_once) == [P, F, P]


def test_a_sticky_failure_stays_whatever_follows() -> None:
    sticky = Timings(fail_for_s=0.0, clear_for_s=1.0, unknown_for_s=1.0, sticky=True)
    assert run([(0, F), (5, P), (50, P), (60, U), (99, U), (100, S)], sticky) == [F] * 6


def test_a_failure_outlives_its_evidence_where_unknown_would_open_the_gate() -> None:
    lenient = Timings(fail_for_s=0.0, clear_for_s=1.0, unknown_for_s=5.0, unknown_blocks=False)
    assert run([(0, F), (1, U), (100, U)], lenient) == [F, F, F]


def test_a_fail_for_of_one_reading_still_needs_two() -> None:
    short = Timings(fail_for_s=0.001, clear_for_s=0.0, unknown_for_s=0.0)
    assert run([(0, P), (1, F), (1.002, F)], short) == [P, P, F]


READINGS = st.lists(st.tuples(st.floats(0.01, 20), st.sampled_from([P, W, F, U])), min_size=1, max_size=40)
TIMINGS = st.builds(
    Timings,
    fail_for_s=st.floats(0.1, 10),
    clear_for_s=st.floats(0, 20),
    unknown_for_s=st.floats(0, 60),
    sticky=st.booleans(),
    unknown_blocks=st.booleans(),
)


@given(gaps=READINGS, timings=TIMINGS, serving=st.booleans())
def test_properties(gaps: list[tuple[float, Verdict]], timings: Timings, serving: bool) -> None:
    state: Confirmation | None = None
    now_s, last_good_s, unknown_since_s, raws = 0.0, None, 0.0, []
    for gap_s, raw in gaps:
        now_s += gap_s
        before = state
        unknown_since_s = unknown_since_s if raws[-1:] == [U] else now_s
        state = step(state, raw, timings, now_s, serving=serving)
        raws.append(raw)
        if raw in (P, W):
            last_good_s = now_s
        # PASS is never said without a PASS having been read within the bridge.
        if state.verdict in (P, W):
            assert last_good_s is not None
            assert raw is not U or (serving and now_s - unknown_since_s < timings.unknown_for_s)
        # A FAIL is never confirmed while serving on fewer than two FAIL readings without a PASS between.
        if serving and state.verdict is F and (before is None or not before.failed):
            assert raw is F
            since = len(raws) - 1 - next((i for i, r in enumerate(reversed(raws)) if r in (P, W)), len(raws))
            assert raws[since + 1 :].count(F) >= 2
        if before is not None and before.verdict is F and timings.sticky:
            assert state.verdict is F
        if not serving and raw is F:
            assert state.verdict is F
        if not serving and raw is U:
            assert state.verdict in (F, U)


@given(gaps=READINGS, timings=TIMINGS)
def test_the_same_reading_at_the_due_moment_changes_the_verdict(
    gaps: list[tuple[float, Verdict]], timings: Timings
) -> None:
    state: Confirmation | None = None
    now_s = 0.0
    for gap_s, raw in gaps:
        now_s += gap_s
        state = step(state, raw, timings, now_s, serving=True)
    assert state is not None
    due_s = due_mono_s(state, timings)
    if due_s is not None:
        # A second reading is needed at any rate, so a due moment may have passed already.
        after = step(state, state.raw, timings, max(due_s, now_s) + 1e-6, serving=True)
        assert after.verdict is not state.verdict
    else:
        assert step(state, state.raw, timings, now_s + 1e6, serving=True).verdict is state.verdict
