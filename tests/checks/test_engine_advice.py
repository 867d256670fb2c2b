"""engine.health names the engine and the command that helps, for whoever runs the engine."""

from __future__ import annotations

import pytest
from check_cases import run_check
from fake_h200 import h200_node, h200_profile

from agent.checks.registry import load_all
from agent.model import Verdict


@pytest.mark.parametrize(
    ("mode", "phase", "hint"),
    [
        ("manage", "backoff", "Read `nodegate engine logs glm`; the agent restarts it"),
        ("manage", "exited", "Read `nodegate engine logs glm`; the agent restarts it"),
        ("manage", "crashloop", "mend the cause, run `nodegate gate clear glm --reason TEXT`."),
        ("gate", "exited", "Read the engine's own log"),
    ],
)
def test_a_crashed_engine(mode: str, phase: str, hint: str) -> None:
    node = h200_node()
    node.data["engines"]["glm"] |= {"phase": phase, "reason": "exit code 1"}
    found = run_check(load_all()["engine.health"], node, h200_profile({"mode": mode}))["engine:glm"]
    assert found.verdict is Verdict.FAIL
    assert hint in found.action.hint
    assert phase not in found.summary.split()
