"""The alert rules as files: labels, texts, and that they name metrics and labels that /metrics has.

promtool, which is Prometheus' own engine, judges them in tests/root/test_promtool.py.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from alert_series import FOLDER, RULES, SLOW_SCENES, rules, scenes
from alert_units import CASES, IN_SCENES
from metrics_pages import TARGET, known_samples, labels_by_metric
from promql_names import grouping_labels, selectors
from repo_files import ROOT

from agent.model import ActionKind

ALERTS = [rule for rule in rules() if "alert" in rule]
SEVERITIES = {"page", "ticket", "info"}
#: Work that is no finding's: what kind it is, docs/operations.md says.
KINDS = {"look", "capacity", "cooling", "prompts", "operator"}


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule} | {"nodegate:pool:minimum_ready"}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_who_what_and_what_to_do(rule: dict[str, Any]) -> None:
    labels, texts = rule["labels"], rule["annotations"]
    assert labels["severity"] in SEVERITIES
    if "action" in labels:
        assert labels["action"] in KINDS | {kind.value for kind in ActionKind}
    else:
        assert "nodegate_check_finding" in rule["expr"], "the finding's own action is its label"
    assert set(texts) == {"summary", "description", "runbook_url"}
    subjects = ("$labels.node", "$labels.engine", "$labels.row", "$labels.platform", "$labels.pool")
    assert any(subject in texts["summary"] for subject in subjects)
    assert len(texts["summary"]) < 200 and len(texts["description"]) > 40
    assert texts["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_metric_and_label_of_a_rule_is_there(rule: dict[str, Any]) -> None:
    known, made = labels_by_metric(), recorded()
    found = list(selectors(rule["expr"]))
    assert found
    for one in found:
        assert one.name in known or one.name in made, one
        for label, operator, value in one.matchers:
            assert label in known[one.name], one
            values = {dict(labels).get(label) for name, labels in known_samples() if name == one.name}
            if operator == "=" and label in ("verdict", "state"):
                assert value in values or one.name in ("nodegate_check_finding",), one
            if operator == "=~" and label == "state":
                assert set(value.split("|")) <= values, one
    every = set().union(*(known.get(one.name, TARGET | {"engine", "group"}) for one in found))
    assert grouping_labels(rule["expr"]) <= every


def test_the_checks_that_rules_name_are_there() -> None:
    from agent.checks.registry import load_all

    named = {
        value.replace("[.]", ".")
        for rule in rules()
        for one in selectors(rule["expr"])
        for label, _, values in one.matchers
        if label == "check"
        for value in values.split("|")
    }
    assert len(named) >= 4 and named <= set(load_all())


def test_every_alert_is_tried_both_ways() -> None:
    fires = {alert for alert, _, _, labels in CASES if labels is not None}
    silent = {alert for alert, _, _, labels in CASES if labels is None}
    names = {rule["alert"] for rule in ALERTS}
    assert fires | IN_SCENES == names and silent | IN_SCENES == names
    played = [
        (one["alertname"], bool(one["exp_alerts"]))
        for name in scenes()
        if name.startswith("scene-")
        for test in yaml.safe_load((FOLDER / name).read_text())["tests"]
        for one in test["alert_rule_test"]
    ]
    assert {(name, fired) for name in IN_SCENES for fired in (True, False)} <= set(played)


@pytest.mark.parametrize("name", sorted(set(scenes()) - SLOW_SCENES))
def test_what_promtool_plays_is_what_the_agent_renders(name: str) -> None:
    assert (FOLDER / name).read_text() == scenes()[name](), "run python -m tests.support.alert_series"


def test_no_other_file_is_played() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(scenes())


def test_the_rules_work_without_the_role() -> None:
    text = (ROOT / "playbooks/roles/monitoring/files/nodegate.rules.yml").read_text()
    assert "{%" not in text and "{{ monitoring" not in text


def test_the_example_for_alertmanager_names_what_is_there() -> None:
    """amtool reads it in tests/root; whether names and labels are those of the rules it cannot know."""
    text = (RULES.with_name("alertmanager.example.yml")).read_text()
    said = yaml.safe_load(text)
    matchers = re.findall(r"(\w+) ([=!]~?) \"([^\"]+)\"", text)
    names = {rule["alert"] for rule in ALERTS}
    allowed = {
        "alertname": names,
        "severity": SEVERITIES,
        "action": KINDS | {kind.value for kind in ActionKind},
    }
    for label, _, values in matchers:
        assert label in {*allowed, "check"}
        assert label == "check" or set(values.split("|")) <= allowed[label], values
    assert len(matchers) >= 10
    receivers = {one["name"] for one in said["receivers"]}
    assert {said["route"]["receiver"], *(route["receiver"] for route in said["route"]["routes"])} == receivers
    assert said["route"]["group_by"][0] == "action"


def test_every_metric_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "interfaces.md").read_text()
    names = {name.removeprefix("nodegate_") for name, _ in known_samples()}
    named = {name for name in names if not name.startswith(("roce_", "ib_"))}
    assert len(named) > 40
    assert {name for name in named if f"`{name}" not in text} == set()
