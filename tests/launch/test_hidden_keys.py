"""API keys on an engine's command line: hidden where a launch or the engine's own output is shown."""

from __future__ import annotations

from fake_h200 import h200_node, h200_profile

from agent.launch.arguments import masked
from agent.launch.launch_profile import build_plan


def test_every_key_of_a_flag_that_takes_several_is_hidden() -> None:
    given = ["--api-key", "one", "two", "--port", "1", "--api_key=three"]
    assert masked(given, "--api-key") == ["--api-key", "***", "***", "--port", "1", "--api_key=***"]


def test_keys_of_the_command_line_and_of_the_files_are_hidden_in_the_log() -> None:
    launch = {"args": ["--api-key", "k-1", "k-2", "--seed", "1"], "env": {"VLLM_API_KEY": "k-3"}}
    profile = h200_profile({"engines": {"glm": {"launch": launch}}})
    plan = build_plan(profile, "glm", h200_node().sources, {"PATH": "/usr/bin"})
    assert set(plan.hidden) == {"k-1", "k-2", "k-3"}
