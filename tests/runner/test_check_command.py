"""`nodegate check` on the replayed demo node, through the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

import agent
from agent.cli import run_command_line

NODE = Path(agent.__file__).parent / "demo_nodes" / "h200-roce"
QUICK = ["--only", "gpu.*"]


def check(capsys: pytest.CaptureFixture[str], *words: str, node: Path = NODE) -> tuple[int, str, str]:
    code = run_command_line(["check", "--node", str(node), *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_sound_node_passes_and_says_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(capsys, "--sample-seconds", "0.05")
    assert (code, err) == (0, "")
    assert out.startswith("SIMULATED")
    assert "0 would block a gate" in out.splitlines()[-1]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, *QUICK, "--format", "json")
    data = json.loads(out)
    assert (code, data["schema"], data["simulated"], data["phase"]) == (0, 1, True, "admission")
    assert {"gpu.lost gpu0", "gpu.lost gpu7"} <= {f"{r['check']} {r['subject']}" for r in data["results"]}


def test_a_failing_check_is_exit_code_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    text = (NODE / "profile.yaml").read_text(encoding="utf-8")
    profile.write_text(f"{text}\nlimits:\n  gpu.thermal_margin:\n    min_margin_c: 60\n", encoding="utf-8")
    code, out, _ = check(
        capsys, "--profile", str(profile), "--only", "gpu.thermal_margin", "--format", "junit"
    )
    assert code == 1
    assert ElementTree.fromstring(out).attrib["failures"] == "8"


def test_what_is_not_known_is_exit_code_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    node = tmp_path / "node"
    shutil.copytree(NODE, node)
    (node / "nvml.json").write_text('{"system": {"error": "UNKNOWN"}, "gpus": []}')
    code, out, _ = check(capsys, "--only", "gpu.*", node=node)
    assert code == 2
    assert "UNKNOWN" in out


def test_a_sound_node_passes_in_phase_serving_without_a_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, "--phase", "serving", "--sample-seconds", "0.05", "--format", "json")
    waiting = {r["check"] for r in json.loads(out)["results"] if "needs the daemon" in r["summary"]}
    assert waiting == {
        "engine.cpu", "engine.health", "engine.latency", "engine.memory", "engine.numa",
        "engine.prefix_cache", "engine.pressure", "gpu.memory_growth", "history.repeat",
    }  # fmt: skip
    assert code == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--only", "gpu.los"], "did you mean gpu.lost"),
        (["--only", "engine.health"], "it does with --phase serving"),
        (["--sample-seconds", "-1"], "--sample-seconds -1 is not between 0 and 600"),
        (["--sample-seconds", "nan"], "is not between 0 and 600"),
        (["--phase", "sometimes"], "sometimes"),
        (["--format", "xml"], "xml"),
        (["--scenario", "/nonexistent.yaml"], "/nonexistent.yaml"),
        (["--profile", "/nonexistent.yaml"], "/nonexistent.yaml"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_3(
    capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    code, out, err = check(capsys, *words)
    assert (code, out) == (3, "")
    assert text in err
    assert len(err.splitlines()) == 1


def test_a_node_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = check(capsys, node=tmp_path / "none")
    assert (code, len(err.splitlines())) == (3, 1)
