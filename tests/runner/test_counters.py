"""Counters over time: baselines, resets, wraps, windows, and what a restarted agent takes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import BaselineOnly, ParseError
from agent.sources.book_room import FEW, IDLE_S, MOST
from agent.sources.counters import MOST_SAMPLES, CounterBook, CounterDelta

FULL_32 = 2**32


def test_the_first_sample_is_a_baseline_and_not_a_verdict() -> None:
    book = CounterBook()
    with pytest.raises(BaselineOnly):
        book.delta("c", 41, 100.0)
    assert book.delta("c", 44, 110.0) == CounterDelta(3, 10.0, 3)


def test_a_counter_that_goes_down_was_reset_and_starts_anew() -> None:
    book = CounterBook()
    _first(book, 1000, 0.0)
    assert book.delta("c", 1005, 10.0).delta == 5
    with pytest.raises(BaselineOnly):
        book.delta("c", 2, 20.0)
    assert book.delta("c", 3, 30.0) == CounterDelta(1, 10.0, 1)


def test_a_counter_of_known_width_goes_on_where_it_wraps() -> None:
    book = CounterBook()
    _first(book, FULL_32 - 10, 0.0)
    assert book.delta("c", 5, 10.0, bits=32) == CounterDelta(15, 10.0, 15)
    assert book.delta("c", 8, 20.0, bits=32) == CounterDelta(18, 20.0, 18)


@pytest.mark.parametrize(("before", "after"), [(1000, 0), (FULL_32 // 2, 5), (FULL_32 - 10, FULL_32 // 2)])
def test_a_fall_that_is_no_wrap_is_a_reset(before: int, after: int) -> None:
    book = CounterBook()
    _first(book, before, 0.0)
    with pytest.raises(BaselineOnly):
        book.delta("c", after, 10.0, bits=32)
    assert book.delta("c", after + 1, 20.0, bits=32) == CounterDelta(1, 10.0, 1)


def test_a_reset_after_a_wrap_starts_anew() -> None:
    book = CounterBook()
    _first(book, FULL_32 - 10, 0.0)
    book.delta("c", 500, 10.0, bits=32)
    with pytest.raises(BaselineOnly):
        book.delta("c", 3, 20.0, bits=32)
    assert book.delta("c", 4, 30.0, bits=32) == CounterDelta(1, 10.0, 1)


def test_the_window_is_covered_and_no_longer_than_needed() -> None:
    book = CounterBook()
    _first(book, 0, 0.0)
    for second in range(10, 200, 10):
        found = book.delta("c", second, float(second), window_s=60.0)
    assert (found.delta, found.seconds, found.since_baseline) == (60, 60.0, 190)


def test_a_long_window_read_often_keeps_a_bounded_number_of_samples() -> None:
    book = CounterBook()
    _first(book, 0, 0.0)
    for second in range(1, 20_000):
        found = book.delta("c", second, float(second), window_s=10_800.0)
    assert found.per_second == pytest.approx(1.0)
    assert 10_800 <= found.seconds <= 10_800 * (1 + 2 / MOST_SAMPLES) + 1
    assert len(book._counters["c"].samples) <= MOST_SAMPLES * 1.1


def test_a_restarted_agent_goes_on_from_its_last_sample() -> None:
    book = CounterBook()
    _first(book, 100, 1000.0)
    book.delta("c", 104, 1010.0)
    again = _restarted(book, 1015.0)
    assert again.delta("c", 110, 1020.0) == CounterDelta(10, 20.0, 10)


def test_growth_of_a_long_absence_is_not_judged_as_growth_of_a_window() -> None:
    book = CounterBook()
    _first(book, 100, 1000.0)
    again = _restarted(book, 90_000.0)
    with pytest.raises(BaselineOnly):
        again.delta("c", 5000, 90_000.0)
    assert again.delta("c", 5001, 90_010.0) == CounterDelta(1, 10.0, 4901)


@pytest.mark.parametrize(
    "stored",
    [
        [],
        {"c": 3},
        {"c": [1, 0, 10.0, 1, 20.0]},
        {"c": [1, 0, 10.0, 1, 2000.0, 2]},  # yet to come
        {"c": [1, 0, 30.0, 1, 20.0, 2]},
        {"c": [1, 0, 10.0, 5, 20.0, 2]},
        {"c": [1, 0, 10.0, "1", 20.0, 2]},
        {"c": [1.5, 0, 10.0, 1, 20.0, 2]},
        {"c": [1, 0, float("nan"), 1, 20.0, 2]},
        {"c": [1, 0, 10**400, 1, 10**400, 2]},
    ],
)
def test_a_stored_book_that_is_garbled_or_from_the_future_is_dropped_whole(stored: Any) -> None:
    book = CounterBook()
    with pytest.raises(ParseError):
        book.restore(stored, 1000.0)
    with pytest.raises(BaselineOnly):
        book.delta("c", 1, 1000.0)


def test_threads_that_come_and_go_for_months_do_not_fill_the_book() -> None:
    book = CounterBook()
    _first(book, 1, 0.0)
    for hour in range(1, 100):
        assert book.delta("c", hour, hour * 3600.0).seconds > 0  # what is read all the time stays
        for thread in range(400):
            with pytest.raises(BaselineOnly):
                book.delta(f"thread/{hour}/{thread}", 1, hour * 3600.0)
        assert len(book.export()) <= FEW
    assert IDLE_S < 100 * 3600.0


def test_a_flood_of_names_is_bounded_and_the_newest_stay() -> None:
    book = CounterBook()
    for number in range(MOST + 2):
        with pytest.raises(BaselineOnly):
            book.delta(f"thread/{number}", 1, number / 1000)
    assert MOST // 2 <= len(book.export()) < MOST
    assert book.delta(f"thread/{MOST - 2}", 3, 1000.0).delta == 2


def _first(book: CounterBook, value: int, at_s: float) -> None:
    with pytest.raises(BaselineOnly):
        book.delta("c", value, at_s)


def _restarted(book: CounterBook, now_s: float) -> CounterBook:
    again = CounterBook()
    again.restore(json.loads(json.dumps(book.export())), now_s)
    return again
