"""How a fleet stands: what needs a person comes first, what is unknown is not ready, a group counts once."""

from __future__ import annotations

import io
import json

import pytest
from fleet_sites import SILENT, host, in_maintenance, says, site
from many_nodes import brief

from agent.console import Out
from agent.fleet.standing import ORDER, fleet_of
from agent.fleet.status_show import fleet_json, show_fleet, summary

PAIR = ("g1", "g2")


def shown(fleet, **more: object) -> str:
    stream = io.StringIO()
    show_fleet(Out(stream), fleet, took_s=0.1, **more)
    return stream.getvalue()


def test_worst_first_and_by_name_within_a_state() -> None:
    states = {
        "n10": "serving",
        "n9": "warming",
        "n1": "degraded",
        "n2": "failed",
        "n12": "quarantined",
        "n3": "failed",
    }
    hosts = [host(name) for name in (*states, "n4")]
    answers = {name: says(name, state) for name, state in states.items()} | {"n4": SILENT}
    fleet = fleet_of(site(*hosts), answers)
    assert [row.hosts[0] for row in fleet.rows] == ["n4", "n12", "n2", "n3", "n9", "n1", "n10"]
    assert fleet.exit_code == 1
    assert summary(fleet, 0.1) == (
        "7 hosts: 1 unknown, 1 quarantined, 2 failed, 1 warming, 1 degraded, 1 serving;"
        " ready main 2/7 (1 degraded, 1 unknown) (0.1 s)"
    )


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"a": says("a"), "b": says("b")}, 0),
        ({"a": says("a"), "b": says("b", "degraded")}, 0),
        ({"a": says("a"), "b": says("b", "launching")}, 1),
        ({"a": says("a"), "b": SILENT}, 2),
        ({"a": says("a")}, 2),
        ({"a": says("a", "failed"), "b": SILENT}, 1),
        ({"a": in_maintenance("a"), "b": says("b")}, 1),
        ({"a": says("a", "observe", mode="observe"), "b": says("b")}, 1),
    ],
)
def test_exit_codes(answers, code: int) -> None:
    assert fleet_of(site(host("a"), host("b")), answers).exit_code == code


def test_what_is_silent_is_unknown_with_what_to_look_at() -> None:
    (row,) = fleet_of(site(host("a")), {"a": SILENT}).rows
    assert (row.worst.state, row.ready, row.worst.what) == ("unknown", False, "no answer within 3 s")
    assert "port 9470 is let through" in row.worst.hint


def test_an_agent_whose_loop_hangs_is_not_live_whatever_its_gate_said() -> None:
    data = brief("a", "failed", live=False, profile_hash="hash-a")
    from agent.fleet.ask import Answer
    from agent.fleet.told import parse

    (row,) = fleet_of(site(host("a")), {"a": Answer(parse(json.dumps(data).encode(), "a"))}).rows
    assert row.worst.state == "not live" and "restart it" in row.worst.hint


def test_engines_that_the_agent_does_not_know_are_missing() -> None:
    fleet = fleet_of(site(host("a", "main", "second")), {"a": says("a")})
    (row,) = fleet.rows
    assert (row.worst.engine, row.worst.state) == ("second", "missing")
    assert [(pool.pool, pool.ready, pool.all) for pool in fleet.pools] == [("main", 1, 1), ("second", 0, 1)]
    assert "main serving, second missing" in shown(fleet)


def test_members_of_a_group_are_one_instance() -> None:
    both = (host("g1", group=PAIR), host("g2", group=PAIR), host("n1"))
    fleet = fleet_of(site(*both), {"g1": says("g1"), "g2": says("g2", "member"), "n1": says("n1")})
    assert fleet.exit_code == 0
    assert [row.hosts for row in fleet.rows] == [PAIR, ("n1",)]
    assert [(pool.ready, pool.all) for pool in fleet.pools] == [(2, 2)]
    assert "g1, g2  serving" in shown(fleet)


@pytest.mark.parametrize(("head", "code"), [(SILENT, 2), (says("g1", "failed"), 1)])
def test_a_group_is_what_its_head_is(head, code: int) -> None:
    fleet = fleet_of(
        site(host("g1", group=PAIR), host("g2", group=PAIR)), {"g1": head, "g2": says("g2", "member")}
    )
    assert fleet.exit_code == code and not fleet.rows[0].ready and fleet.pools[0].ready == 0


def test_a_member_that_nobody_hears_of_is_told_though_the_head_serves() -> None:
    fleet = fleet_of(site(host("g1", group=PAIR), host("g2", group=PAIR)), {"g1": says("g1"), "g2": SILENT})
    assert fleet.exit_code == 2 and fleet.pools[0].ready == 1
    assert "g1 serving, g2 unknown" in shown(fleet)


def test_asking_for_a_member_asks_for_its_group() -> None:
    hosts = (host("g1", group=PAIR), host("g2", group=PAIR), host("n1"))
    fleet = fleet_of(site(*hosts, asked=("g2",)), {"g1": says("g1"), "g2": says("g2", "member")})
    assert [row.hosts for row in fleet.rows] == [PAIR]


def test_a_head_that_the_inventory_does_not_have_is_never_ready() -> None:
    fleet = fleet_of(site(host("g2", group=PAIR)), {"g2": says("g2", "member")})
    assert fleet.exit_code != 0 and fleet.pools[0].ready == 0


def test_maintenance_tells_who_and_why_and_how_it_ends() -> None:
    (row,) = fleet_of(site(host("a")), {"a": in_maintenance("a", "coolant {pump}")}).rows
    assert row.worst.what == "maintenance: coolant {pump} (uid 0)"
    assert row.worst.hint.endswith("fleet maintain --finish --limit a")


def test_another_profile_and_another_release_are_told() -> None:
    answers = {"a": says("a"), "b": says("b", version="0.2.0")}
    object.__setattr__(answers["a"].told, "profile_hash", "older")
    text = shown(fleet_of(site(host("a"), host("b")), answers))
    assert "run another profile than the inventory has: a; run site.yml --tags agent" in text
    assert "2 releases of nodegate: 0.1.0, 0.2.0" in text


def test_a_checklist_in_progress_and_problems_are_told() -> None:
    run = {"name": "post-maintenance", "run_id": "x", "verdict": None, "step": "soak", "done": 6, "total": 8}
    text = shown(
        fleet_of(site(host("a")), {"a": says("a", "maintenance", checklist=run, problems=["disk full"])})
    )
    assert "a: checklist post-maintenance, step soak, 6 of 8 done" in text
    assert "a: PROBLEM disk full" in text


def test_what_an_agent_says_cannot_move_a_terminal() -> None:
    data = says("a", "failed")
    reason = data.told.gates[0].blocking[0]
    object.__setattr__(reason, "summary", "hot\x1b[2J\nsecond {line}")
    object.__setattr__(reason.action, "hint", "cool {it}\x07")
    text = shown(fleet_of(site(host("a")), {"a": data}))
    assert "hot\\x1b[2J second {line}" in text and "cool {it}\\x07" in text and "\x1b" not in text


def test_many_that_serve_are_counted() -> None:
    names = [f"n{i}" for i in range(30)]
    fleet = fleet_of(site(*map(host, names)), {name: says(name) for name in names} | {"n7": SILENT})
    assert "and 29 that serve (--all shows them)" in shown(fleet) and "n8 " not in shown(fleet)
    assert "n8 " in shown(fleet, every=True)


def test_a_large_group_and_many_of_one_action_fit_a_page() -> None:
    group = tuple(f"gpu-node-{number:02}" for number in range(16))
    alone = [f"n{number}" for number in range(5)]
    hosts = [*(host(name, group=group) for name in group), *map(host, alone)]
    answers = {name: says(name, "member") for name in group} | dict.fromkeys(alone, SILENT)
    fleet = fleet_of(site(*hosts), answers | {group[0]: says(group[0], "failed")})
    text = shown(fleet)
    assert "gpu-node-00, gpu-node-01, gpu-node-02 +13" in text and "gpu-node-03" not in text
    assert "\n-> gpu-node-00: Look at the cooling of this GPU.\n" in text
    (silent,) = [line for line in text.splitlines() if line.startswith("-> n0")]
    assert silent.startswith("-> n0, n1, n2 +2: ")
    assert max(len(line) for line in text.splitlines() if not line.startswith("->")) < 200
    assert next(row for row in fleet_json(fleet, 0.1)["rows"] if len(row["hosts"]) > 1)["hosts"] == [*group]


def test_of_a_group_with_many_silent_members_some_are_named() -> None:
    group = tuple(f"g{number}" for number in range(16))
    answers = dict.fromkeys(group, SILENT) | {"g0": says("g0")}
    text = shown(fleet_of(site(*(host(name, group=group) for name in group)), answers))
    assert "g0 serving, g1 unknown, g2 unknown +13" in text


def test_a_long_reason_is_cut_for_people_alone() -> None:
    data = says("a", "failed")
    object.__setattr__(data.told.gates[0].blocking[0], "summary", "x" * 400)
    fleet = fleet_of(site(host("a")), {"a": data})
    assert "xxx...\n" in shown(fleet) and "x" * 130 not in shown(fleet)
    assert "x" * 130 in json.dumps(fleet_json(fleet, 0.1))


def test_json_has_everything() -> None:
    fleet = fleet_of(site(host("a")), {"a": says("a", "failed")})
    data = json.loads(json.dumps(fleet_json(fleet, 0.5)))
    assert (data["schema"], data["exit_code"], data["rows"][0]["state"]) == (1, 1, "failed")
    assert data["rows"][0]["what"] == "gpu.thermal_margin gpu3: margin is -4 C, at least 5 C is wanted"
    assert data["rows"][0]["hint"] == "Look at the cooling of this GPU."
    assert data["pools"] == [{"pool": "main", "ready": 0, "degraded": 0, "unknown": 0, "all": 1}]


def test_every_state_of_a_gate_has_its_place() -> None:
    from agent.model import GateState

    assert {state.value for state in GateState} <= set(ORDER)
