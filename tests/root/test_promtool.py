"""Prometheus' own engine on the alert rules, Alertmanager's own reader on its example."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from alert_series import FOLDER, RULES, SLOW_SCENES, SeriesLog, scenes
from build_dashboard import queries
from metrics_pages import known_samples
from repo_files import ROOT

pytestmark = pytest.mark.root
EXAMPLE = RULES.with_name("alertmanager.example.yml")
SCENE = "scene-07-prompts-changed.yml"


def ask(*words: object, folder: Path = FOLDER) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_the_rules_are_rules() -> None:
    code, said = ask("promtool", "check", "rules", RULES)
    assert code == 0 and "SUCCESS" in said, said


@pytest.mark.parametrize("name", scenes())
def test_alerts_fire_when_they_must_and_only_then(name: str) -> None:
    code, said = ask("promtool", "test", "rules", name)
    assert code == 0 and "SUCCESS" in said, said[-3000:]


@pytest.mark.parametrize("name", SLOW_SCENES)
def test_a_slow_scene_is_what_the_agent_renders(name: str) -> None:
    assert (FOLDER / name).read_text() == scenes()[name](), "run python -m tests.support.alert_series"


@pytest.mark.parametrize(
    ("before", "after"),
    [("prompts changed", "all is well"), ("eval_time: 14m", "eval_time: 19m"), ("hits 7%", "hits 8%")],
)
def test_a_wrong_expectation_is_told(tmp_path: Path, before: str, after: str) -> None:
    text = (FOLDER / SCENE).read_text().replace("../../playbooks", str(ROOT / "playbooks"))
    head, found, rest = text.partition("alert_rule_test")
    assert before in rest
    (tmp_path / SCENE).write_text(head + found + rest.replace(before, after))
    code, said = ask("promtool", "test", "rules", SCENE, folder=tmp_path)
    assert code != 0 and "FAILED" in said, said


def test_every_query_of_the_dashboard_gives_something(tmp_path: Path) -> None:
    log = SeriesLog(frozenset({name for name, _ in known_samples()} | {"up"}), row="a")
    for _ in range(12):
        log.take_samples("n1", known_samples())
    asked = sorted(set(queries()))
    alerts = [{"alert": f"Q{at}", "expr": f"count({query}) > 0"} for at, query in enumerate(asked)]
    groups = {"groups": [{"name": "queries", "rules": alerts}]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(groups))
    found = [
        {"eval_time": "2m", "alertname": one["alert"], "exp_alerts": [{"exp_labels": {}}]} for one in alerts
    ]
    said = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "15s", "input_series": log.input_series(), "alert_rule_test": found}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(said, width=10_000))
    code, words = ask("promtool", "test", "rules", "test.yml", folder=tmp_path)
    empty = [asked[int(number)] for number in re.findall(r"alertname: Q(\d+),", words)]
    assert code == 0 and empty == [], (empty, words[-500:])


ROUTES = {
    "severity=page action=capacity pool=chat": "on-call",
    "severity=page action=cooling row=a": "cooling,on-call",
    "severity=ticket action=prompts engine=glm": "release",
    "severity=ticket action=contact_support node=n1": "hardware",
    "severity=ticket action=apply_play node=n1": "tickets",
    "severity=info action=operator": "tickets",
}


def test_alertmanager_takes_the_example() -> None:
    code, said = ask("amtool", "check-config", EXAMPLE)
    assert code == 0 and "SUCCESS" in said, said


@pytest.mark.parametrize("labels", ROUTES)
def test_each_kind_of_work_reaches_who_does_it(labels: str) -> None:
    code, said = ask("amtool", "config", "routes", "test", f"--config.file={EXAMPLE}", *labels.split())
    assert code == 0 and ROUTES[labels] in said.splitlines(), said
