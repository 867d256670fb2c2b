"""What the commands share: durations, which profile is used, sources that are closed, tables."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from agent.commands import open_sources, parse_duration, resolve_profile
from agent.console import Out
from agent.errors import ConfigError
from agent.profile_loader import profile_from_dict


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0), ("1.5d", 129600.0), ("250ms", 0.25)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-5m", "0s", "1e3s", "30 m", "2h30m", "400d", "nan", "infs"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ConfigError, match="write"):
        parse_duration(text)


def test_the_profile_of_a_node_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "profile.yaml").write_text("platform: h200\nnode: from-folder\n")
    assert resolve_profile(None, None, tmp_path).profile.node == "from-folder"


def test_a_named_profile_goes_before_that_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "profile.yaml").write_text("platform: h200\nnode: from-folder\n")
    named = tmp_path / "other.yaml"
    named.write_text("platform: h200\nnode: named\n")
    assert resolve_profile(named, None, tmp_path).profile.node == "named"


def test_a_folder_without_a_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--profile FILE"):
        resolve_profile(None, None, tmp_path)
    with pytest.raises(ConfigError, match="not a folder"):
        resolve_profile(None, None, tmp_path / "missing")


def test_a_scenario_needs_a_node(tmp_path: Path) -> None:
    profile = profile_from_dict({"platform": "h200"}).profile
    with pytest.raises(ConfigError, match="--node DIR"), open_sources(profile, scenario=tmp_path / "s.yaml"):
        pass


def test_a_piped_table_is_plain_and_aligned() -> None:
    stream = io.StringIO()
    out = Out(stream)
    out.banner(simulated=True, folder="h200-roce")
    out.table(("check", "verdict", "summary"), [("gpu.count", None, "8 of\n8"), ("xid", "FAIL", None)])
    assert stream.getvalue().splitlines() == [
        "SIMULATED: these readings come from the node folder h200-roce, not from this machine",
        "check      verdict  summary",
        "gpu.count  -        8 of 8",
        "xid        FAIL",
    ]


def test_a_real_node_has_no_banner() -> None:
    stream = io.StringIO()
    Out(stream).banner(simulated=False)
    assert stream.getvalue() == ""
