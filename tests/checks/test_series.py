"""Value history and dips: pure, so tested without a node."""

import pytest

from agent.checks.dips import flag_dips, growth_dips, level_dips, rhythm
from agent.checks.gpu_pcie_errors import aer_total
from agent.errors import BaselineOnly, ParseError
from agent.sources.book_room import FEW
from agent.sources.series import MOST_SAMPLES, Sample, Series, SeriesBook


def series(*values: float, step_s: float = 2.0) -> Series:
    return Series("s", tuple(Sample(100 + i * step_s, value) for i, value in enumerate(values)))


def test_the_window_is_kept_and_no_more() -> None:
    book = SeriesBook()
    for second in range(100):
        seen = book.record("t", second, float(second), 30.0)
    assert seen.values == list(range(69, 100))
    assert seen.span_s == 30.0


def test_a_first_sample_is_a_baseline() -> None:
    book = SeriesBook()
    with pytest.raises(BaselineOnly):
        book.record("t", 1.0, 5.0, 30.0).grown()
    with pytest.raises(BaselineOnly):
        book.record("t", 2.0, 5.0, 30.0).grown()
    assert book.record("t", 3.0, 6.0, 30.0).grown().values == [2.0, 3.0]


def test_time_that_goes_back_starts_anew() -> None:
    book = SeriesBook()
    book.record("t", 1.0, 50.0, 30.0)
    assert book.record("t", 2.0, 10.0, 30.0).values == [2.0]


def test_names_are_apart_and_memory_is_bounded() -> None:
    book = SeriesBook()
    for second in range(MOST_SAMPLES + 10):
        seen = book.record("a", 1.0, float(second), 1e9)
    assert len(seen.samples) == MOST_SAMPLES
    assert book.record("b", 2.0, 0.0, 1e9).values == [2.0]


def test_the_first_value_stays() -> None:
    book = SeriesBook()
    assert book.first("t", 1.0, 5.0) == Sample(5.0, 1.0)
    assert book.first("t", 9.0, 8.0) == Sample(5.0, 1.0)


def test_thirds_are_means_and_fill_gaps() -> None:
    assert series(1, 1, 2, 2, 3, 3, 3).thirds() == (1.0, 2.0, 3.0)
    assert series(5).thirds() == (5.0, 5.0, 5.0)
    assert Series("s", (Sample(0, 1), Sample(1, 1), Sample(30, 4))).thirds() == (1.0, 1.0, 4.0)


def test_neighbouring_growth_is_one_dip_and_a_reset_none() -> None:
    ns = 1e9
    dips = growth_dips(series(0, 0.3 * ns, 0.6 * ns, 0.6 * ns, 0.9 * ns, 0), 0.01)
    assert [round(dip.seconds, 3) for dip in dips] == [0.6, 0.3]


def test_less_than_the_least_is_no_dip() -> None:
    assert growth_dips(series(0, 1e6, 1e6, 2e6), 0.01) == []


def test_a_level_must_come_back_to_be_a_dip() -> None:
    assert level_dips(series(700, 700, 400, 400, 400), 5) == []
    assert level_dips(series(500, 500, 700, 700), 5) == []
    (dip,) = level_dips(series(700, 400, 400, 700), 5)
    assert dip.seconds == 4.0


def test_a_flag_counts_from_the_poll_before() -> None:
    assert [dip.seconds for dip in flag_dips(series(0, 1, 1, 0, 1))] == [4.0, 2.0]


def test_a_rhythm_is_told_only_when_there_is_one() -> None:
    ns = 1e9
    regular = growth_dips(series(0, ns, ns, ns, ns, ns, 2 * ns, 2 * ns, 2 * ns, 2 * ns, 2 * ns, 3 * ns), 0)
    assert rhythm(regular, 2.0).period_s == 10.0
    ragged = series(0, ns, ns, 2 * ns, *[2 * ns] * 30, 3 * ns)
    assert rhythm(growth_dips(ragged, 0), 2.0).period_s is None
    assert rhythm(regular[:2], 2.0).period_s is None


@pytest.mark.parametrize(
    "text",
    ["", "TOTAL_ERR_COR", "TOTAL_ERR_COR x", "TOTAL_ERR_COR -1", "XTOTAL_ERR_COR 1", "TOTAL_ERR_COR ²"],
)
def test_garbled_aer_counters_are_refused(text: str) -> None:
    with pytest.raises(ParseError):
        aer_total(text, "TOTAL_ERR_COR")


def test_the_total_is_found_among_the_lines() -> None:
    assert aer_total("RxErr 3\nBadTLP 0\nTOTAL_ERR_COR 72\n", "TOTAL_ERR_COR") == 72


def test_names_of_engines_that_are_gone_do_not_fill_the_book() -> None:
    book = SeriesBook()
    for hour in range(60):
        assert book.first("stays", float(hour), hour * 3600.0).value == 0.0
        for pid in range(400):
            book.record(f"engine/{hour}/{pid}", 1.0, hour * 3600.0, 60.0)
            book.first(f"engine/{hour}/{pid}", 1.0, hour * 3600.0)
        assert len(book) <= 2 * (FEW + 1)
