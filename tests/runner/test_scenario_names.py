"""A scenario of a node folder by its name, or by a path as any file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.commands import open_sources, resolve_profile, scenario_file
from agent.demo_node import NODE_DIR
from agent.errors import ConfigError


def test_a_name_is_looked_up_in_the_node(tmp_path: Path) -> None:
    own = NODE_DIR / "scenarios" / "xid79.yaml"
    assert scenario_file(NODE_DIR, Path("xid79")) == own
    assert scenario_file(NODE_DIR, own) == own
    assert scenario_file(NODE_DIR, None) is None
    assert scenario_file(tmp_path, Path("xid79")) == Path("xid79")


def test_an_unknown_name_is_one_clear_line() -> None:
    profile = resolve_profile(None, node=NODE_DIR).profile
    with (
        pytest.raises(ConfigError, match="no-such: there is no such file"),
        open_sources(profile, node=NODE_DIR, scenario=Path("no-such")),
    ):
        pass
