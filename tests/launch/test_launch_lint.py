"""`nodegate launch lint`: exit codes, JSON; no restart into a launch that would fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
import yaml
from cli_words import nodegate
from fake_h200 import h200_node, h200_profile
from lint_kit import launch_of, vllm_site

from agent.checks.registry import load_all
from agent.commands.launch_lint import LintFormat, exit_code, lint_command, report_json
from agent.model import Finding, Result, ServingClass, Snapshot, Verdict
from agent.restart_rule import restart_refusal
from agent.sources.launch_reading import LaunchReport, Problem, Severity

WARNED = Problem(Severity.WARNING, "--a", "is odd", "look")
WRONG = Problem(Severity.ERROR, "--b", "is wrong", "remove it")


@pytest.mark.parametrize(
    ("problems", "facts", "code"),
    [((), {"engine": "vllm"}, 0), ((WARNED,), {"engine": "vllm"}, 0), ((WARNED, WRONG), {}, 1), ((), {}, 2)],
)
def test_exit_codes(problems: tuple[Problem, ...], facts: dict[str, str | float], code: int) -> None:
    assert exit_code(LaunchReport("x", problems, facts=facts)) == code


def test_json() -> None:
    found = report_json("e", LaunchReport("x", (WRONG,), facts={"flags_given": 1}), "", simulated=True)
    assert found["simulated"] is True and found["parser"] is None and found["facts"] == {"flags_given": 1}
    assert found["problems"] == [
        {"severity": "error", "where": "--b", "text": "is wrong", "remedy": "remove it"}
    ]


def profile(folder: Path, *args: str) -> str:
    engine = {"gpus": [], "port": 18000, "launch": launch_of(vllm_site(folder / "venv"), *args)}
    node = {"platform": "generic-8gpu", "mode": "manage", "gpus": {"count": 0}, "fabric": {"kind": "none"}}
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump({**node, "nvlink": {"links_per_gpu": 0}, "engines": {"e": engine}}))
    return str(path)


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    path = profile(tmp_path, "--swap-space", "8")
    answer = nodegate("launch", "lint", "e", "--profile", path)
    assert answer.returncode == 1, answer.stderr
    first, _, heads, row = answer.stdout.splitlines()
    assert first == "3 flags for vllm 0.32.0: 1 error, 0 warnings"
    assert heads.split()[:2] == ["severity", "where"]
    assert row.startswith("error     --swap-space  vllm 0.32.0 no longer has it")


def test_a_source_that_cannot_be_read_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(profile(tmp_path))
    (tmp_path / "venv/lib/python3.11/site-packages/vllm/engine/arg_utils.py").unlink()
    with pytest.raises(typer.Exit) as ended:
        lint_command("e", profile=path, lint_format=LintFormat.JSON)
    assert ended.value.exit_code == 2
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] is None and "arg_utils.py cannot be read" in found["summary"]


def snapshot(check: str, verdict: Verdict, raw: Verdict, *, waived: bool = False) -> Snapshot:
    finding = Finding("engine:glm", verdict, "--swap-space: is gone; remove it")
    result = Result(check, finding, verdict, raw, ServingClass.SOFT, 1.0, 1.0, 60.0, waived=waived)
    return Snapshot("n", "h", True, "b", 1.0, 1.0, {(check, "engine:glm"): result})


F, P, W = Verdict.FAIL, Verdict.PASS, Verdict.WARN


def test_no_restart_into_a_launch_that_would_fail() -> None:
    node = h200_profile()
    refused = restart_refusal(snapshot("engine.flags", F, F), node, "glm")
    assert refused is not None and "\n" not in refused
    assert refused.startswith(
        "glm is not stopped, for its launch would fail: engine.flags: --swap-space: is gone"
    )
    assert restart_refusal(snapshot("engine.flags", F, F), node, "kimi") is None
    assert "its last reading failed" in str(restart_refusal(snapshot("engine.flags", P, F), node, "glm"))
    for other in ("engine.checkpoint", "engine.memory_plan"):
        assert restart_refusal(snapshot(other, F, F), node, "glm") is not None
    assert restart_refusal(snapshot("engine.flags", W, W), node, "glm") is None
    assert restart_refusal(snapshot("engine.flags", Verdict.UNKNOWN, Verdict.UNKNOWN), node, "glm") is None
    assert restart_refusal(snapshot("engine.flags", F, F, waived=True), node, "glm") is None
    assert restart_refusal(None, node, "glm") is None
    shadow = h200_profile({"checks": {"engine.flags": {"shadow": True}}})
    assert restart_refusal(snapshot("engine.flags", F, F), shadow, "glm") is None


def test_a_replayed_node_launches_nothing() -> None:
    """Its engines' launches are not made here: SKIP there, UNKNOWN on a live node."""
    from agent.sources.launch_reading import NoLaunchEvidence

    check, node = load_all()["engine.flags"], h200_profile()
    for simulated, verdict in ((True, Verdict.SKIP), (False, Verdict.UNKNOWN)):
        sources = replace(h200_node().sources, launches=NoLaunchEvidence(), simulated=simulated)
        found = list(check.run(sources, node, check.limits()))
        assert [finding.verdict for finding in found] == [verdict, verdict]
