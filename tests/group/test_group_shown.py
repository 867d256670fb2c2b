"""What `nodegate status` says of the members of a group, and its exit code on a follower."""

from __future__ import annotations

from typing import Any

import pytest

from agent.commands.status import all_well, show_status


def _status(state: str, stage: str, *, ready: bool = False, live: bool = True) -> dict[str, Any]:
    member = {"node": "node-b", "rank": 1, "heard_s": 1.0, "data_s": 0.5, "error": "", "data_error": ""}
    waits = {"gate": "member", "stage": stage, "waits_for": ["gpu.ecc gpu3: 2 errors"]}
    gate = {
        "engine": "glm", "state": state, "ready": ready, "since_s": 3.0, "reason": "", "forced": False,
        "force_open": None, "blocking": [], "process": None,
        "group": {"rank": 0, "stage": "go", "generation": "ab", "reason": "", "members": [member | waits]},
    }  # fmt: skip
    return {"live": live, "ready": ready, "gates": [gate], "results": [], "holds": None}


@pytest.mark.parametrize(
    ("status", "well"),
    [
        (_status("serving", "go", ready=True), True),
        (_status("member", "go"), True),
        (_status("member", "go", live=False), False),
        (_status("preflight", "waiting"), False),
        (_status("member", "go") | {"gates": []}, False),
    ],
)
def test_a_rank_that_serves_through_its_head_is_well(status: dict[str, Any], well: bool) -> None:
    assert all_well(status) is well


@pytest.mark.parametrize(("stage", "told"), [("waiting", True), ("ending", True), ("go", False)])
def test_a_member_whose_rank_runs_waits_for_nothing(
    capsys: pytest.CaptureFixture[str], stage: str, told: bool
) -> None:
    show_status(_status("serving", stage, ready=True))
    assert ("waits for gpu.ecc" in capsys.readouterr().out) is told
