"""A bad inventory: the line begins with the file and the line, and no file is overlooked."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.fleet.inventory_faults import MOST_CHARS, brief, inventory_fault, refuse_bad_yaml

GOOD = "all:\n  hosts:\n    a: {key: !vault 'x', other: \"{{ y }}\"}\n"
OLD = "[DEPRECATION WARNING]: the old way is deprecated, and\nwill be gone.\n"


def said(sources: list[Path]) -> str:
    with pytest.raises(ConfigError) as caught:
        refuse_bad_yaml(sources)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"all:\n  hosts:\n    a: {\n   b: [\n", ":5: not valid YAML: "),
        (b"all:\n  hosts:\n\ta:\n", ":3: a tab where YAML wants spaces; indent with spaces"),
        (b"all:\n  hosts: {a: '\xff'}\n", ": not valid YAML: "),
    ],
)
def test_the_line_begins_with_the_file_and_the_line(tmp_path: Path, content: bytes, told: str) -> None:
    bad = tmp_path / "hosts.yml"
    bad.write_bytes(content)
    for source in (bad, tmp_path):
        assert said([source]).startswith(f"{bad}{told}")
        assert len(said([source])) < len(str(bad)) + MOST_CHARS


def test_one_bad_file_beside_good_ones_is_not_overlooked(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(GOOD)
    (tmp_path / "README.md").write_text("all: [\n")
    refuse_bad_yaml([tmp_path])
    (tmp_path / "b.yaml").write_text("all: [\n")
    assert said([tmp_path]).startswith(f"{tmp_path}/b.yaml:2: ")
    refuse_bad_yaml([tmp_path / "a.yml"])


def test_a_bad_file_of_variables_is_named_once_ansible_has_given_up(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(GOOD)
    (tmp_path / "group_vars/all").mkdir(parents=True)
    assert str(inventory_fault([tmp_path], f"{OLD}[ERROR]: no such\nplugin")).startswith("no such plugin; ")
    bad = tmp_path / "group_vars/all/x.yml"
    bad.write_text("x: [\n")
    with pytest.raises(ConfigError) as caught:
        inventory_fault([tmp_path / "hosts.yml"], "YAML parsing failed")
    assert str(caught.value).startswith(f"{bad}:2: not valid YAML: ")


def test_of_ansibles_messages_each_is_told_once_without_deprecations_and_cut() -> None:
    warning = "[WARNING]: cannot parse\n  x.ini\n"
    assert brief(f"noise\n{OLD}{warning}{OLD}{warning}") == "cannot parse x.ini"
    assert brief("  plain\ntext ") == "plain text"
    assert len(brief("[WARNING]: " + "x" * 900)) == MOST_CHARS
