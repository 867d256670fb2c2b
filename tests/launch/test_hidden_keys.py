"""Secrets on an engine's command line or in its variables: hidden where a launch or its output is shown."""

from __future__ import annotations

import json

import pytest
from fake_h200 import h200_node, h200_profile

from agent.commands.launch import plan_json
from agent.launch.launch_profile import build_plan
from agent.launch.secret_words import is_secret_variable, shown_argv


def test_every_key_of_a_flag_that_takes_several_is_hidden() -> None:
    given = ["--api-key", "one", "two", "--port", "1", "--api_key=three"]
    assert shown_argv(given) == ["--api-key", "***", "***", "--port", "1", "--api_key=***"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--hf-token", "hf_abc", "--seed", "1"], ["--hf-token", "***", "--seed", "1"]),
        (["--hf_token=hf_abc"], ["--hf_token=***"]),
        (["--api-k", "one"], ["--api-k", "***"]),
        (["--admin-api-key=one"], ["--admin-api-key=***"]),
        (
            ["--ssl-keyfile-password", "p", "--ssl-keyfile", "/k"],
            ["--ssl-keyfile-password", "***", "--ssl-keyfile", "/k"],
        ),
        (["--env=HF_TOKEN=hf_abc", "--env=A=b"], ["--env=HF_TOKEN=***", "--env=A=b"]),
        (
            ["--env", "X_API_KEY=k=k", "-e", "DB_PASSWORD=p"],
            ["--env", "X_API_KEY=***", "-e", "DB_PASSWORD=***"],
        ),
        (["--env=HF_TOKEN", "--env=VLLM_API_KEY", "img"], ["--env=HF_TOKEN", "--env=VLLM_API_KEY", "img"]),
        (
            ["--tokenizer", "t", "--max-num-batched-tokens", "8"],
            ["--tokenizer", "t", "--max-num-batched-tokens", "8"],
        ),
    ],
)
def test_other_secrets_are_hidden_and_nothing_else(given: list[str], shown: list[str]) -> None:
    assert shown_argv(given) == shown


def test_secret_variables_are_known_by_name() -> None:
    names = "VLLM_API_KEY HF_TOKEN AWS_SECRET_ACCESS_KEY DB_PASSWORD TOKENIZERS_PARALLELISM NCCL_IB_HCA PATH"
    assert [name for name in names.split() if is_secret_variable(name)] == names.split()[:4]


def test_keys_of_the_command_line_and_of_the_files_are_hidden_in_output_and_log() -> None:
    launch = {
        "args": ["--api-key", "k-one", "k-two", "--hf-token", "k-six", "--seed", "1"],
        "env": {"VLLM_API_KEY": "k-three", "HF_TOKEN": "k-four"},
        "inherit_env": ["PATH", "AWS_SECRET_ACCESS_KEY"],
    }
    profile = h200_profile({"engines": {"glm": {"launch": launch}}})
    plan = build_plan(
        profile, "glm", h200_node().sources, {"PATH": "/usr/bin", "AWS_SECRET_ACCESS_KEY": "k-five"}
    )
    assert set(plan.hidden) == {"k-one", "k-two", "k-three", "k-four", "k-five", "k-six"}
    assert "k-" not in json.dumps(plan_json(plan, simulated=False))
