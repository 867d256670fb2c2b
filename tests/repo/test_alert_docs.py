"""Every alert has its section in docs/operations.md: its meaning, and three commands that exist."""

from __future__ import annotations

import re
import shlex

import pytest
import typer.main
import yaml
from repo_files import ROOT

from agent.cli import build_app

RULES = ROOT / "playbooks/roles/monitoring/files/nodegate.rules.yml"
TEXT = (ROOT / "docs" / "operations.md").read_text()
#: Tools of the machine that a section may name.
STANDARD = {"ansible-playbook", "df", "journalctl", "nvidia-smi", "ping", "systemctl"}
ALERTS = [rule for g in yaml.safe_load(RULES.read_text())["groups"] for rule in g["rules"] if "alert" in rule]


def section(alert: str) -> str:
    """The text under the alert's heading."""
    found = re.search(rf"^### {alert}\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/operations.md has no section {alert}"
    return found[1]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_its_meaning_and_three_commands(rule: dict[str, object]) -> None:
    text = section(str(rule["alert"]))
    labels = rule["labels"]
    assert isinstance(labels, dict)
    action = f"`{labels['action']}`" if "action" in labels else "action of the finding"
    assert text.strip().startswith(f"`{labels['severity']}`, {action}. ")
    commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert len(commands) == 3 == len(set(commands))
    for command in commands:
        assert_exists(shlex.split(command))


def assert_exists(words: list[str]) -> None:
    """A standard tool, or a command of nodegate with options that it has."""
    if words[0] in STANDARD:
        return
    assert words[0] == "nodegate", words
    command, rest = typer.main.get_command(build_app(None)), words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]  # type: ignore[attr-defined]
    assert not getattr(command, "commands", None), words
    options = {name for param in command.params for name in param.opts}
    assert {word for word in rest if word.startswith("-")} <= options, (words, options)


def test_no_section_is_of_an_alert_that_is_gone() -> None:
    assert set(re.findall(r"^### (Nodegate\w+)$", TEXT, re.MULTILINE)) == {rule["alert"] for rule in ALERTS}
