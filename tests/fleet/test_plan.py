"""Who may be taken into maintenance: pools, shares, groups, unknown nodes; every refusal with its numbers."""

from __future__ import annotations

import pytest
from fleet_sites import SILENT, host, in_maintenance, says, site

from agent.errors import ConfigError
from agent.fleet.plan import Head, heads_of, plan
from agent.fleet.profile_facts import ProfileFacts
from agent.fleet.site import SiteHost

FOUR = ("n1", "n2", "n3", "n4")
PAIR, OTHER = ("g1", "g2"), ("h1", "h2")


def four(**given):
    return site(*(host(name, nodegate_min_ready="75%", **given) for name in FOUR))


def all_serve(*names: str, **others):
    return {name: says(name) for name in names} | others


def refusal(*args) -> str:
    with pytest.raises(ConfigError) as told:
        plan(*args)
    text = str(told.value)
    assert "\n" not in text
    return text


def groups(*names: str, **given):
    """Two instances of two nodes each."""
    made = [
        host(name, group=PAIR if name in PAIR else OTHER, nodegate_min_ready=1, **given)
        for name in names or (*PAIR, *OTHER)
    ]
    return site(*made)


def group_answers(**more):
    whole = {"g1": says("g1"), "g2": says("g2", "member"), "h1": says("h1"), "h2": says("h2", "member")}
    return whole | more


def test_one_of_four_may_go_and_the_lines_say_why() -> None:
    found = plan(four(), all_serve(*FOUR), ["n2"])
    assert found.lines == (
        "pool main: 1 in maintenance then, at most 1",
        "pool main: 3 of 4 engines stay ready, nodegate_min_ready is 75% (3)",
    )
    assert found.heads == {"n2": ()} and found.held == ()


def test_a_second_one_waits_for_the_first() -> None:
    text = refusal(four(), all_serve("n1", "n3", "n4", n2=in_maintenance("n2", "pump")), ["n1"])
    assert text == (
        "pool main: 2 nodes would be in maintenance at once (n1 asked for, n2 is already (pump)),"
        " nodegate_maintain_at_once is 1; give that one back first:"
        " nodegate fleet maintain --finish --limit n2"
    )


def test_several_at_once_need_to_be_allowed_and_carried() -> None:
    assert "2 nodes would be in maintenance at once" in refusal(four(), all_serve(*FOUR), ["n1", "n2"])
    text = refusal(four(nodegate_maintain_at_once=2), all_serve(*FOUR), ["n1", "n2"])
    assert "pool main: 2 of 4 engines would be ready without n1, n2; nodegate_min_ready is 75% (3)" in text


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (SILENT, "unknown"),
        (says("n3", "failed"), "failed"),
        (says("n3", "warming"), "warming"),
        (says("n3", live=True, gates=[]), "missing"),
    ],
)
def test_what_is_not_ready_does_not_carry(other, word: str) -> None:
    text = refusal(four(), all_serve("n1", "n2", "n4", n3=other), ["n1"])
    assert f"2 of 4 engines would be ready without n1, n3 {word}; nodegate_min_ready is 75% (3)" in text


def test_a_degraded_one_carries() -> None:
    plan(four(), all_serve("n1", "n2", "n4", n3=says("n3", "degraded")), ["n1"])


def test_a_node_that_serves_nothing_may_always_be_mended() -> None:
    answers = {"n1": says("n1", "failed"), "n2": SILENT, "n3": says("n3", "quarantined"), "n4": says("n4")}
    assert "nothing of it serves on n1" in plan(four(), answers, ["n1"]).lines[1]


def test_a_silent_node_cannot_be_taken() -> None:
    assert "n1: its agent does not answer (no answer within 3 s)" in refusal(
        four(), all_serve("n2", n1=SILENT), ["n1"]
    )
    assert "its agent does not answer" in refusal(four(), {}, ["n1"])
    dead = says("n1", "failed", live=False)
    assert "does not beat" in refusal(four(), all_serve("n2", "n3", n1=dead), ["n1"])


def test_taking_it_again_is_no_second_one() -> None:
    answers = all_serve("n2", "n3", "n4", n1=in_maintenance("n1"))
    found = plan(four(), answers, ["n1"])
    assert found.held == ("n1",)
    assert "2 nodes would be" in refusal(four(), answers, ["n1", "n2"])


def test_the_number_must_be_there_and_be_one() -> None:
    without = site(host("n1"), host("n2"))
    text = refusal(without, all_serve("n1", "n2"), ["n1"])
    assert (
        "pool main: the inventory does not say how many of 2 engines must stay ready; set nodegate_min_ready"
        in text
    )
    for bad in ("most", "120%", -1, True, 1.5, "{{ x }}", None):
        text = refusal(site(host("n1", nodegate_min_ready=bad)), all_serve("n1"), ["n1"])
        assert f"nodegate_min_ready is {bad!r} in the inventory; write a whole number" in text
    for bad in (0, "two"):
        text = refusal(
            site(host("n1", nodegate_min_ready=0, nodegate_maintain_at_once=bad)), all_serve("n1"), ["n1"]
        )
        assert f"nodegate_maintain_at_once is {bad!r}" in text


@pytest.mark.parametrize(
    ("number", "may"),
    [(0, True), ("0%", True), (1, True), ("1", True), ("50%", True), (2, False), ("51%", False)],
)
def test_numbers_and_shares(number, may: bool) -> None:
    two = site(host("n1", nodegate_min_ready=number), host("n2"))
    if may:
        plan(two, all_serve("n1", "n2"), ["n2"])
    else:
        assert "1 of 2 engines would be ready" in refusal(two, all_serve("n1", "n2"), ["n2"])


def test_the_most_careful_number_of_a_pool_counts() -> None:
    two = site(host("n1", nodegate_min_ready=0), host("n2", nodegate_min_ready=2))
    assert "nodegate_min_ready is 2" in refusal(two, all_serve("n1", "n2"), ["n1"])


def test_pools_are_told_apart_by_engine_or_by_the_inventory() -> None:
    mixed = site(
        host("p1", "prefill", nodegate_min_ready=1),
        host("d1", "decode", nodegate_min_ready=1),
        host("d2", "decode", nodegate_min_ready=1),
    )
    answers = {
        "p1": says("p1", engine="prefill"),
        "d1": says("d1", engine="decode"),
        "d2": says("d2", engine="decode"),
    }
    assert "pool prefill: 0 of 1 engines would be ready" in refusal(mixed, answers, ["p1"])
    plan(mixed, answers, ["d1"])
    plan(mixed, answers | {"p1": in_maintenance("p1")}, ["d1"])
    apart = site(
        host("n1", nodegate_pool="blue", nodegate_min_ready=0),
        host("n2", nodegate_pool="green", nodegate_min_ready=0),
    )
    plan(apart, {"n1": in_maintenance("n1"), "n2": says("n2")}, ["n2"])


def test_two_engines_of_a_node_are_two_pools() -> None:
    both = site(host("n1", "a", "b", nodegate_min_ready=1), host("n2", "a", nodegate_min_ready=1))
    two = says("n1", engine="a")
    answers = {"n1": two, "n2": says("n2", engine="a")}
    object.__setattr__(two.told, "gates", [*two.told.gates, *says("n1", engine="b").told.gates])
    assert "pool b: 0 of 1 engines would be ready" in refusal(both, answers, ["n1"])


def test_a_group_is_one_and_its_head_is_drained_first() -> None:
    found = plan(groups(), group_answers(), ["g2"])
    assert found.heads == {"g2": (Head("g1", "main"),)}
    assert found.lines[-1] == "main on g1, g2 is one: it stops as a whole; g1 stays up and waits"
    assert "1 of 2 engines stay ready" in found.lines[1]
    assert plan(groups(), group_answers(), ["g1"]).heads == {"g1": ()}


def test_both_members_of_a_group_count_as_one() -> None:
    found = plan(groups(), group_answers(), ["g1", "g2"])
    assert "1 in maintenance then, at most 1" in found.lines[0]
    assert found.lines[-1] == "main on g1, g2 is one: it stops as a whole"
    stopped = group_answers(g1=in_maintenance("g1"), g2=says("g2", "launching"))
    assert plan(groups(), stopped, ["g2"]).heads == {"g2": ()}


def test_a_second_group_is_refused() -> None:
    held = group_answers(g2=in_maintenance("g2"), g1=says("g1", "stopped"))
    assert "2 nodes would be in maintenance at once (h1 asked for, g2 is already (pump))" in refusal(
        groups(), held, ["h1"]
    )


def test_a_group_whose_head_is_silent_is_not_cut() -> None:
    text = refusal(groups(nodegate_maintain_at_once=2), group_answers(g1=SILENT), ["g2"])
    assert text.startswith("g2: it works for main on g1, g2, and the head of it, g1, does not answer")
    idle = group_answers(g1=SILENT, g2=says("g2", "launching"))
    plan(groups(), idle, ["g2"])


def test_heads_of_a_host_are_those_of_all_its_engines() -> None:
    assert heads_of(groups(), "g2") == (Head("g1", "main"),)
    assert heads_of(groups(), "g1") == (Head("g1", "main"),)


def test_a_bad_profile_is_no_node_to_take() -> None:
    bad = host("n1")
    object.__setattr__(bad.facts, "fault", "all.yaml:3: no such key")
    assert refusal(site(bad), all_serve("n1"), ["n1"]).startswith("n1: all.yaml:3: no such key")


def test_what_the_inventory_does_not_know_is_not_taken() -> None:
    """The profile was changed and has not reached the node: what its agent serves is in no pool."""
    changed = site(*(host(name, "renamed", nodegate_min_ready="75%") for name in FOUR))
    assert "n1: it serves main otherwise than its profile" in refusal(changed, all_serve(*FOUR), ["n1"])
    text = refusal(four(), all_serve("n2", "n3", "n4", n1=says("n1", "member")), ["n1"])
    assert "n1: it serves main otherwise than its profile" in text


def test_a_share_counts_nodes_whose_profile_is_bad() -> None:
    """Eight nodes, four of them with a profile that nobody can read: 75 % are six, not three."""
    bad = [SiteHost(f"b{i}", "192.0.2.9", ProfileFacts(fault="profiles/b.yaml:3: no"), {}) for i in range(4)]
    both = site(*four().hosts.values(), *bad)
    text = refusal(both, all_serve(*FOUR), ["n1"])
    assert "3 of 8 engines would be ready without n1, b0 bad profile" in text and "75% (6)" in text
    other = [SiteHost(one.name, one.address, one.facts, {"nodegate_pool": "else"}) for one in bad]
    plan(site(*four().hosts.values(), *other), all_serve(*FOUR), ["n1"])


def test_the_most_careful_of_those_in_maintenance_counts() -> None:
    """Whichever of two goes first, the second is refused when either allows no other."""
    mixed = site(
        host("n1", nodegate_min_ready=1, nodegate_maintain_at_once=1),
        *(host(name, nodegate_min_ready=1, nodegate_maintain_at_once=2) for name in FOUR[1:]),
    )
    first, second = all_serve(*FOUR, n1=in_maintenance("n1")), all_serve(*FOUR, n2=in_maintenance("n2"))
    assert "at_once is 1" in refusal(mixed, first, ["n2"])
    assert "at_once is 1" in refusal(mixed, second, ["n1"])
