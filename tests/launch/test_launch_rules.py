"""What a profile's launch must not contradict is one line with its place."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import ConfigError
from agent.profile_loader import profile_from_dict

IMAGE = "registry.example/vllm@sha256:" + "a" * 64


def fault(launch: dict[str, Any], **more: Any) -> str:
    engine = {"gpus": [], "port": 8000, "launch": launch, **more}
    with pytest.raises(ConfigError) as refused:
        profile_from_dict({"engines": {"x": engine}})
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("launch", "text"),
    [
        ({"runtime": "podman"}, "engines.x.launch.runtime: podman needs launch.container; add container"),
        (
            {"container": {"image": IMAGE}},
            "launch.container: a container is described, and",
        ),
        (
            {
                "runtime": "podman",
                "container": {"image": IMAGE, "mounts": [{"source": "/a,b", "target": "/c"}]},
            },
            "mounts.0.source: podman reads a comma",
        ),
        ({"runtime": "podman", "container": {"image": "vllm:latest"}}, "launch.container.image"),
        ({"kind": "sglang"}, "launch.command: starts vLLM, and launch.kind is sglang"),
        (
            {"preset": "d1-kimi-k3-awq-b300"},
            "launch.model: is missing: preset d1-kimi-k3-awq-b300",
        ),
        ({"flags": {"a": []}}, "launch.flags.a: is an empty list; write null to leave the flag out"),
        ({"flags": {"a": ["-b"]}}, "launch.flags.a: has the item '-b'"),
        ({"flags": {"a_b": 1}}, "launch.flags"),
        (
            {"flags": {"max-num-seqs": 8}, "args": ["--max_num_seqs=4"]},
            "launch.flags: max-num-seqs and --max_num_seqs in launch.args are the same flag",
        ),
    ],
)
def test_a_contradiction_names_its_place(launch: dict[str, Any], text: str) -> None:
    assert text in fault(launch)


@pytest.mark.parametrize(
    "launch", [{"flags": {"shutdown-timeout": 30}}, {"args": ["--shutdown-timeout", "45"]}]
)
def test_the_drain_must_end_before_the_kill(launch: dict[str, Any]) -> None:
    assert "and is killed after stop_deadline_s = 30 s" in fault(launch)
    engine = {"gpus": [], "port": 8000, "launch": launch, "stop_deadline_s": 60}
    assert profile_from_dict({"engines": {"x": engine}}).profile.engines["x"].stop_deadline_s == 60
