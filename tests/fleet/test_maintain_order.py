"""What an operator may order, and what is said of a node in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fleet_sites import SILENT, in_maintenance, says

from agent.errors import ConfigError
from agent.fleet.ask import Answer
from agent.fleet.maintain import order_of, where_it_stands


def order(reason: str | None = "pump", who: str = "ada", **more: Any):
    return order_of(reason, who, **{"finish": False, "resume": False, "answers": (), **more})


def test_each_way_has_its_play_and_its_variables() -> None:
    assert order().play == "maintenance"
    assert json.loads(order().variables(Path("/r"))) == {"maintain_reason": "pump (ada, by fleet maintain)"}
    back = order(None, resume=True, answers=("coolant-seen=it flows",))
    assert back.play == "post_maintenance"
    assert json.loads(back.variables(Path("/r"))) == {
        "post_maintenance_who": "ada",
        "post_maintenance_reason": "",
        "post_maintenance_answers": {"coolant-seen": "it flows"},
        "post_maintenance_resume": True,
        "post_maintenance_report": "/r",
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"reason": None}, "nobody would know why"),
        ({"reason": "  "}, "nobody would know why"),
        ({"reason": "a\nb"}, "--reason: write one line"),
        ({"reason": "{{ lookup('env', 'HOME') }}"}, "--reason: write one line"),
        ({"reason": "x" * 301}, "--reason: write one line"),
        ({"who": "{% x %}"}, "--who: write one line"),
        ({"finish": True, "resume": True}, "two ways back"),
        ({"answers": ("a=b",)}, "--answer is for the checklist"),
        ({"finish": True, "answers": ("flows",)}, "is not STEP=TEXT"),
        ({"finish": True, "answers": ("a={{ b }}",)}, "is not STEP=TEXT"),
    ],
)
def test_what_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        order(**given)
    assert told in str(refused.value)


def stands(answer: Answer) -> str:
    return where_it_stands("n1", answer, "inventories/a")


def gate(answer: Answer, **more: Any) -> Answer:
    """The same with something else in its gate."""
    assert answer.told is not None
    told = answer.told.model_dump()
    told["gates"][0].update(more)
    return Answer(type(answer.told).model_validate(told))


def test_what_may_be_done_with_a_node_now() -> None:
    idle = gate(in_maintenance("n1"), process={"pid": None})
    assert stands(idle) == (
        "n1: in maintenance (pump); no engine runs: safe to reboot, power off, open;"
        " back with: nodegate fleet maintain -i inventories/a --limit n1 --finish"
    )
    assert "main still works; do not touch it yet" in stands(gate(in_maintenance("n1"), process={"pid": 7}))
    assert "do not touch it yet" in stands(gate(idle, state="draining"))
    assert stands(says("n1")) == "n1: not in maintenance: main serving"
    assert "UNKNOWN: no answer within 3 s; do not touch it" in stands(SILENT)
    run = {"name": "post-maintenance", "verdict": None, "step": "load", "done": 3, "total": 9}
    assert "its checklist post-maintenance goes on (step load)" in stands(
        says("n1", "maintenance", checklist=run)
    )


def test_what_is_not_fresh_makes_nothing_safe() -> None:
    idle = gate(in_maintenance("n1"), process={"pid": None}).told
    assert idle is not None
    hung = Answer(idle.model_copy(update={"live": False}))
    assert "UNKNOWN: the main loop of its agent does not beat; do not touch it" in stands(hung)
    fresh = Answer(idle.model_copy(update={"live": False, "gates": []}))
    assert "do not touch it" in stands(fresh), "an agent that has published nothing yet"


def test_a_checklist_that_was_killed_does_not_go_on() -> None:
    run = {
        "name": "post-maintenance",
        "verdict": None,
        "running": False,
        "step": "load",
        "done": 3,
        "total": 9,
    }
    held = {"maintenance": {"reason": "pump", "who": "uid 0"}, "waivers": []}
    left = says("n1", "maintenance", checklist=run, holds=held)
    assert "back with: nodegate fleet maintain" in stands(gate(left, process={"pid": None}))


def test_an_engine_that_somebody_else_runs_is_theirs_to_stop() -> None:
    held = in_maintenance("n1").told
    assert held is not None
    answer = Answer(held.model_copy(update={"mode": "gate"}))
    assert "stop its engine yourself before you touch it" in stands(answer)
