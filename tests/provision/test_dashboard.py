"""The Grafana dashboard: current, well laid out, and every query names metrics and labels of a real page.

The reader of queries sees names and labels, not whether operators match; promtool does, in
tests/root/test_promtool.py, where each query must give something on a page of a node.
"""

from __future__ import annotations

import json
import re

import pytest
from build_dashboard import FILE, VARIABLES, made, queries
from metrics_pages import TARGET, known_samples, labels_by_metric
from promql_names import grouping_labels, selectors

QUERIES = queries()


def test_the_file_is_current() -> None:
    assert FILE.read_text() == made(), "run python -m tests.support.build_dashboard"


@pytest.mark.parametrize("query", sorted(set(QUERIES)))
def test_a_query_names_what_is_there(query: str) -> None:
    known = labels_by_metric()
    found = list(selectors(query))
    assert found
    for one in found:
        assert one.name in known, one
        assert {label for label, _, _ in one.matchers} <= known[one.name], one
    assert grouping_labels(query) <= set().union(*(known[one.name] for one in found))


def test_legends_and_variables_name_labels_that_are_there() -> None:
    known = labels_by_metric()
    for panel in json.loads(FILE.read_text())["panels"]:
        for target in panel.get("targets", ()):
            (name, *_) = [one.name for one in selectors(target["expr"].replace("$", ""))]
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known[name] | TARGET, target
    for query in VARIABLES.values():
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
        assert label in known[metric]


def test_what_nodegate_measures_is_on_the_dashboard() -> None:
    shown = {one.name for query in QUERIES for one in selectors(query)}
    measured = {
        name for name, _ in known_samples() if re.match(r"nodegate_(gpu|engine|coolant|nvlink)_", name)
    }
    assert measured <= shown


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(FILE.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
