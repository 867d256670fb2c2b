"""What the documents promise is there: commands, targets, links, and a profile that loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
import yaml
from fake_h200 import h200_node
from repo_files import ROOT, short, tracked_with

from agent import cli
from agent.launch.launch_profile import build_plan
from agent.profile_loader import load_profile

README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    path for path in tracked_with((".md",)) if path.is_relative_to(ROOT / "docs") or path.parent == ROOT
]
FOLDER_READMES = [ROOT / name / "README.md" for name in ("playbooks", "inventories")]


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", DOCUMENTS, ids=short)
def test_make_targets_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"(?:`|^ {4}|^\| `)make ([a-z][a-z-]*)", path.read_text(), re.MULTILINE)
    assert set(named) - _targets() == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=short)
def test_commands_that_are_shown_exist(path: Path) -> None:
    group = typer.main.get_command(cli.build_app())
    lines = re.findall(
        r"(?:`|^ {4}|/bin/)nodegate ([a-z][a-z-]*(?: [a-z-]+)?)", path.read_text(), re.MULTILINE
    )
    unknown = set()
    for words in (line.split() for line in lines):
        command = group.commands.get(words[0])
        below = getattr(command, "commands", None)
        if command is None or (below is not None and len(words) > 1 and words[1] not in below):
            unknown.add(" ".join(words))
    assert unknown == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=short)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_profile_of_the_readme_loads(tmp_path: Path) -> None:
    loaded = load_profile(_blocks(tmp_path)[0])
    assert loaded.profile.gpus.count == 8
    assert loaded.profile.engines["main"].agent_check_port == 9471


def test_the_additions_of_the_readme_load_with_it(tmp_path: Path) -> None:
    first, launch, group = _blocks(tmp_path)
    launched = load_profile(launch, overlays=[first]).profile
    argv = build_plan(launched, "main", h200_node().sources, {}).argv
    assert argv.count("--tensor-parallel-size") == 1
    assert "--enforce-eager" not in argv
    members = load_profile(group, overlays=[first]).profile.engines["main"].group
    assert members is not None and len(members.members) == 2


def _blocks(folder: Path) -> list[Path]:
    """The profile of the README and what it adds to it, one file each."""
    paths = []
    for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)):
        paths.append(folder / f"{number}.yaml")
        paths[-1].write_text(text)
    return paths


def test_ports_of_the_load_balancer_are_those_of_the_profile() -> None:
    assert "check port 9470" in README
    assert "agent-port 9471" in README
    assert "agent_check_port: 9471" in README


def test_what_is_not_built_says_so() -> None:
    assert "What it does not do yet" in README


@pytest.mark.parametrize("path", [*DOCUMENTS, *FOLDER_READMES], ids=short)
def test_plays_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"playbooks/([a-z_]+\.yml)", path.read_text())
    assert [name for name in named if not (ROOT / "playbooks" / name).is_file()] == []


def test_every_play_and_role_is_documented() -> None:
    text = (ROOT / "docs" / "provisioning.md").read_text()
    plays = [path.name for path in (ROOT / "playbooks").glob("*.yml")]
    roles = [path.name for path in (ROOT / "playbooks" / "roles").iterdir() if path.is_dir()]
    assert [name for name in (*plays, *roles) if f"`{name}`" not in text] == []


def test_every_variable_of_the_roles_is_documented() -> None:
    text = (ROOT / "docs" / "provisioning.md").read_text()
    specs = [path.read_text() for path in (ROOT / "playbooks" / "roles").glob("*/meta/argument_specs.yml")]
    options = [
        name
        for spec in specs
        for entry in yaml.safe_load(spec)["argument_specs"].values()
        for name in entry["options"]
    ]
    # What the plays themselves give is no business of an operator.
    inner = {"nodegate", "reboot_firmware", "reboot_bmc", "reboot_os"}
    inner |= {name for name in options if name.endswith(("_settled", "_allow_reset"))}
    assert options
    assert [name for name in options if name not in inner and f"`{name}`" not in text] == []
