"""Prometheus' own engine on the alert rules, Alertmanager's own reader on its example."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from alert_series import FOLDER, RULES, SLOW_SCENES, scenes
from repo_files import ROOT

pytestmark = pytest.mark.root
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
