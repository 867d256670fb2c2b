"""Plots of a report: ticks, thinning that keeps peaks, gaps, labels apart, limits, descriptions."""

from __future__ import annotations

import itertools
import random
from xml.etree import ElementTree

import pytest
from checklist_record import failed_record, small_record

from agent.checklist.plot import HEIGHT, Limit, Line, Plot, spread, svg
from agent.checklist.plot_axes import time_axis, value_axis
from agent.checklist.plot_thin import stretches, thin
from agent.checklist.record import Curve, RunRecord
from agent.checklist.report import texts
from agent.checklist.report_plots import figures, quantity


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (36.0, 92.0, ["20", "40", "60", "80", "100"]),
        (0.0, 1.0, ["0", "0.25", "0.50", "0.75", "1.00"]),
        (37.31, 38.0, ["37.2", "37.4", "37.6", "37.8", "38.0"]),
        (-4.0, 12.0, ["-5", "0", "5", "10", "15"]),
        (64.0, 64.0, ["60", "62", "64", "66", "68"]),
        (0.0, 0.0, ["-1.0", "-0.5", "0", "0.5", "1.0"]),
        (0.0, 4_000_000.0, ["0", "1e+06", "2e+06", "3e+06", "4e+06"]),
    ],
)
def test_ticks_are_round_and_hold_the_values(low: float, high: float, texts: list[str]) -> None:
    axis = value_axis(low, high, "C")
    assert [text for _, text in axis.ticks] == texts
    assert axis.low <= low <= high <= axis.high
    assert 0 <= axis.share(low) <= axis.share(high) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_any_range_gets_a_few_ticks_with_different_texts(seed: int) -> None:
    chance = random.Random(seed)
    low = chance.uniform(-1, 1) * 10 ** chance.randint(-5, 8)
    high = low + 10 ** chance.uniform(-4, 8)
    axis = value_axis(low, high, "")
    values = [value for value, _ in axis.ticks]
    assert 3 <= len(values) <= 8
    assert axis.low <= low < high <= axis.high
    times = time_axis(abs(low), abs(low) + (high - low))
    assert len({text for _, text in times.ticks}) == len(times.ticks) <= 9


@pytest.mark.parametrize(
    ("low_s", "high_s", "unit", "texts"),
    [
        (0, 60, "s", ["0", "10", "20", "30", "40", "50", "60"]),
        (147, 326, "min", ["2.5", "3.0", "3.5", "4.0", "4.5", "5.0"]),
        (0, 3600, "min", ["0", "10", "20", "30", "40", "50", "60"]),
        (0, 12 * 3600, "h", ["0", "2", "4", "6", "8", "10", "12"]),
        (5, 5, "s", ["5"]),
    ],
)
def test_times_read_in_the_unit_that_fits(low_s: float, high_s: float, unit: str, texts: list[str]) -> None:
    axis = time_axis(low_s, high_s)
    assert (axis.unit, [text for _, text in axis.ticks]) == (unit, texts)


def test_thinning_keeps_every_peak_and_both_ends() -> None:
    points = [(float(at), 50.0 + at % 7 * 0.1) for at in range(100_000)]
    points[41_207] = (41_207.0, 98.5)
    points[77_001] = (77_001.0, 2.25)
    kept = thin(points, 600)
    assert len(kept) <= 600
    assert kept == sorted(kept)
    assert {points[0], points[-1], (41_207.0, 98.5), (77_001.0, 2.25)} <= set(kept)
    assert thin(points[:600], 600) == points[:600]


def test_what_was_not_measured_is_not_drawn() -> None:
    points = [(float(at), 1.0) for at in range(10)] + [(float(at), 2.0) for at in range(60, 70)]
    assert [len(part) for part in stretches(points)] == [10, 10]
    assert stretches([]) == []
    root = _drawn([Line("gpu0", points)])
    (path,) = [each.get("d", "") for each in root.iter("path") if each.get("class") == "line s0"]
    assert path.count("M") == 2


def test_a_point_alone_is_a_dot() -> None:
    (path,) = [
        each.get("d", "")
        for each in _drawn([Line("gpu0", [(3.0, 7.0)])]).iter("path")
        if each.get("class") == "line s0"
    ]
    first, second = path.removeprefix("M").split("L")
    assert first == second


def test_labels_do_not_overlap_and_stay_in_the_plot() -> None:
    for wanted in ([100.0] * 16, [0.0, 1.0, 2.0], [500.0] * 3, [30.0, 200.0]):
        placed = spread(wanted)
        assert all(after - before > 12.4 for before, after in itertools.pairwise(placed))
        assert min(placed) > 0
        assert max(placed) < HEIGHT
    assert spread([30.0, 200.0]) == [30.0, 200.0]


def test_a_limit_is_drawn_within_the_plot_though_no_value_reaches_it() -> None:
    root = _drawn([Line("gpu0", [(0.0, 40.0), (1.0, 41.0)])], Limit(85.0, "expected <= 85"))
    (limit,) = [each.get("d", "") for each in root.iter("path") if each.get("class") == "limit"]
    assert 0 < float(limit.split()[1].partition("h")[0]) < HEIGHT
    assert "expected <= 85" in [each.text for each in root.iter("text")]


def test_plots_of_a_step_hold_all_subjects_their_limits_and_a_description() -> None:
    record = failed_record()
    made = figures(record, 9)
    assert [figure.title for figure in made] == [
        "GPU temperature (C)", "GPU SM clock (MHz)", "GPU power (W)", "Coolant flow (l/min)",
    ]  # fmt: skip
    root = ElementTree.fromstring(made[0].svg)
    assert root.get("role") == "img"
    named = str(root.get("aria-labelledby")).split()
    assert [root.find(tag).get("id") for tag in ("title", "desc")] == named  # type: ignore[union-attr]
    assert "gpu5 38 to 92.3 C" in str(root.findtext("desc"))
    assert "expected <= 85" in str(root.findtext("desc"))
    assert (
        sum(
            "line s" in str(path.get("class")) and "lead" not in str(path.get("class"))
            for path in root.iter("path")
        )
        == 8
    )
    assert [line.subject for line in made[0].legend] == [f"gpu{gpu}" for gpu in range(8)]
    assert [line.subject for line in made[0].legend if line.style.endswith(" bad")] == ["gpu5"]
    assert figures(record, 0) == []


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(0.0, 1e308), (1.0, -1e308), (2.0, 3.0)], "<= 5"),
        ([(-1e308, 1.0), (1e308, 2.0), (2.0, 3.0)], "<= 5"),
        ([(2.0, 3.0)], f"<= {'9' * 400}"),
        ([(0.0, 1e-320), (1.0, 2e-320)], "<= 5"),
    ],
)
def test_figures_that_no_axis_reaches_cost_no_report(
    points: list[tuple[float, float]], expected: str
) -> None:
    record = small_record()
    soak = record.steps[-1]
    values = [value.model_copy(update={"expected": expected}) for value in soak.values]
    steps = [*record.steps[:-1], soak.model_copy(update={"values": values})]
    curves = [curve.model_copy(update={"points": points}) for curve in record.curves]
    made = texts(record.model_copy(update={"steps": steps, "curves": curves}))
    assert made["report.html"].count("<figure>") == 1
    assert "inf" not in made["report.html"].partition("<figure>")[2].partition("</svg>")[0]


def test_a_limit_in_powers_of_ten_is_where_it_says() -> None:
    record = small_record()
    values = [value.model_copy(update={"expected": "at least 1.5e+06"}) for value in record.steps[-1].values]
    steps = [*record.steps[:-1], record.steps[-1].model_copy(update={"values": values})]
    (figure,) = figures(record.model_copy(update={"steps": steps}), 2)
    heights = [e.get("d", "") for e in ElementTree.fromstring(figure.svg).iter() if e.get("class") == "limit"]
    assert len(heights) == 1
    assert float(heights[0].partition(" ")[2].partition("h")[0]) < HEIGHT / 2


def test_many_subjects_are_spread_over_several_plots() -> None:
    curves = [
        Curve(step="soak", name="rx", subject=f"mlx5_{at}/1", unit="B/s", points=[(0.0, 1.0), (1.0, 2.0)])
        for at in range(40)
    ]
    record: RunRecord = failed_record().model_copy(update={"curves": curves})
    titles = [figure.title for figure in figures(record, 9)]
    assert titles == ["Rx (B/s), 1 to 16 of 40", "Rx (B/s), 17 to 32 of 40", "Rx (B/s), 33 to 40 of 40"]


def test_names_of_quantities_are_words() -> None:
    assert quantity("gpu_sm_clock") == "GPU SM clock"
    assert quantity("roce_out_of_sequence") == "RoCE out of sequence"
    assert quantity("") == ""


def _drawn(lines: list[Line], *limits: Limit) -> ElementTree.Element:
    return ElementTree.fromstring(svg(Plot("p", "Temperature", "C", lines, limits), "what is seen"))
