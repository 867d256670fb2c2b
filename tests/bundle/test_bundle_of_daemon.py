"""A bundle by `--run-dir` alone is of what that daemon runs on."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from bundle_kit import NODE
from nodes import profile_path

from agent.checklist.daemon_link import SocketLink
from agent.cli import run_command_line
from agent.profile_loader import load_profile


def test_the_bundle_of_a_simulated_daemon_is_of_its_node_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = load_profile(profile_path(NODE.name))
    told = {
        "state_dir": str(tmp_path / "state"),
        "files": [str(profile.files[-1])],
        "profile_hash": profile.hash,
        "replay": {"node": str(NODE), "scenario": None, "began_mono_s": None},
    }
    monkeypatch.setattr(SocketLink, "whereabouts", lambda _link: told)
    target = tmp_path / "case.tar.gz"
    assert run_command_line(["bundle", str(target), "--run-dir", str(tmp_path / "run")]) == 2
    assert "SIMULATED" in capsys.readouterr().out
    with tarfile.open(target) as archive:
        file = archive.extractfile("case/manifest.json")
        assert file is not None
        manifest = json.load(file)
    assert manifest["simulated"] is True
    states = {source["name"]: source["state"] for source in manifest["sources"]}
    assert (states["profile"], states["status"]) == ("complete", "missing")  # nobody listens in its folder
