"""`nodegate profile`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml
from profile_cases import GOOD, write

from agent.profile_loader import load_profile


def nodegate(*words: str | Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from agent.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "profile", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_render_shows_origins_and_loads_back(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    shown = nodegate("render", file)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"# {file}:5" in shown.stdout
    again = write(tmp_path, shown.stdout, "again.yaml")
    assert load_profile(again).hash == load_profile(file).hash
    plain = nodegate("render", file, "--plain")
    assert yaml.safe_load(plain.stdout) == yaml.safe_load(shown.stdout)
    assert f"# {file}:5" not in plain.stdout
    data = json.loads(nodegate("render", file, "--json").stdout)
    assert data["gpus"]["power_limit_w"] == 700.0


def test_validate_lists_all_faults_and_exits_3(tmp_path: Path) -> None:
    good = nodegate("validate", write(tmp_path, GOOD))
    assert good.returncode == 0
    assert ": ok (base <- h200 <- " in good.stdout
    bad = write(tmp_path, "a: 1\nb: 2\ngpus: {power_limit_w: 700W}\n", "bad.yaml")
    refused = nodegate("validate", bad)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert [line.split(": ")[0] for line in refused.stderr.splitlines()] == [f"{bad}:{n}" for n in (1, 2, 3)]


def test_overlays_and_notes(tmp_path: Path) -> None:
    overlay = write(tmp_path, "platform: h200\nnode: n7\n", "rack.yaml")
    file = write(tmp_path, "mode: observe\n")
    shown = nodegate("validate", file, "--overlay", overlay)
    assert shown.returncode == 0
    assert "note: fabric.kind is roce, but no data ports are listed" in shown.stderr
    assert "node: n7" in nodegate("render", file, "--overlay", overlay).stdout


def test_diff_exits_0_when_equal_1_when_different_3_when_refused(tmp_path: Path) -> None:
    one = write(tmp_path, GOOD, "one.yaml")
    two = write(tmp_path, GOOD.replace("700", "600"), "two.yaml")
    same = nodegate("diff", one, one)
    assert (same.returncode, same.stdout) == (0, "")
    differs = nodegate("diff", one, two)
    assert (differs.returncode, differs.stdout) == (1, "gpus.power_limit_w: 700.0 -> 600.0\n")
    data = json.loads(nodegate("diff", one, two, "--json").stdout)
    assert data["changes"] == [{"path": "gpus.power_limit_w", "old": 700.0, "new": 600.0}]
    refused = nodegate("diff", one, tmp_path / "none.yaml")
    assert refused.returncode == 3
    assert refused.stderr.count("\n") == 1


def test_one_line_and_exit_3_for_what_cannot_be_rendered(tmp_path: Path) -> None:
    bad = write(tmp_path, "a: 1\nb: 1\n")
    refused = nodegate("render", bad)
    assert refused.returncode == 3
    assert refused.stderr.count("\n") == 1
    assert "and 1 more fault: `nodegate profile validate" in refused.stderr
    for words in (("render", tmp_path), ("nope",), ("diff", bad), ("render", "--nope")):
        refused = nodegate(*words)
        assert refused.returncode == 3, words
        assert "Traceback" not in refused.stderr


def test_schema_is_json() -> None:
    shown = nodegate("schema")
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["title"] == "nodegate node profile"
