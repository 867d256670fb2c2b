"""`nodegate launch command`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_words import complaint, in_process, nodegate

import agent

DEMO_NODE = str(Path(agent.__file__).parent / "demo_nodes" / "h200-roce")
PROFILE = """
platform: generic-8gpu
mode: manage
gpus: {{count: 0}}
nvlink: {{links_per_gpu: 0}}
fabric: {{kind: none}}
engines:
  cpu:
    gpus: []
    port: 18000
    launch: {{model: tiny, args: [--api-key, opensesame], env_file: {env_file}}}
"""


def profile(folder: Path, mode: int = 0o600) -> str:
    """A profile with a secret of each kind."""
    env_file = folder / "secrets.env"
    env_file.write_text("HF_TOKEN=hf_squirrel\n")
    env_file.chmod(mode)
    path = folder / "profile.yaml"
    path.write_text(PROFILE.format(env_file=env_file))
    return str(path)


def test_the_demo_nodes_engine() -> None:
    answer = nodegate("launch", "command", "main", "--node", DEMO_NODE)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("SIMULATED")
    assert "CUDA_VISIBLE_DEVICES  gpus" in answer.stdout
    assert "=mlx5_0:1,mlx5_1:1" in answer.stdout


def test_json_has_argv_and_environment(tmp_path: Path) -> None:
    answer = nodegate(
        "launch", "command", "cpu", "--profile", profile(tmp_path), "--format", "json", LANG="C.UTF-8"
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["argv"] == [
        "vllm",
        "serve",
        "tiny",
        "--host",
        "127.0.0.1",
        "--port",
        "18000",
        "--api-key",
        "***",
    ]
    assert found["env"]["LANG"] == "C.UTF-8"
    assert found["env_origins"]["LANG"] == "the agent's environment"
    assert found["secrets"] == ["HF_TOKEN"]
    assert found["simulated"] is False


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    answer = in_process(capsys, "launch", "command", "cpu", "--profile", profile(tmp_path), "--format", form)
    assert "HF_TOKEN" in answer.stdout
    for secret in ("squirrel", "opensesame"):
        assert secret not in answer.stdout + answer.stderr


def test_refusals_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no engine nope; it has: main" in complaint(
        in_process(capsys, "launch", "command", "nope", "--node", DEMO_NODE)
    )
    exposed = in_process(capsys, "launch", "command", "cpu", "--profile", profile(tmp_path, 0o644))
    assert "mode is 0644; run chmod 0600" in complaint(exposed)
