"""The common life of a group: start together, end together, begin again; the head is open only with all."""

from __future__ import annotations

import group_kit as kit
import pytest
from fake_groups import observation
from group_kit import World
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.group.state import GroupRecord, Mine, Peer, decide, troubles
from agent.group.status import Stage
from agent.group.verdict import word_on
from agent.model import EnginePhase, GateState, Verdict


@pytest.mark.parametrize("count", [2, 3, 8])
def test_all_start_in_one_generation_and_only_the_head_opens(count: int) -> None:
    world = World(count)
    world.until_open()
    assert len({node.record.generation for node in world.nodes}) == 1
    assert [node.gate for node in world.nodes[1:]] == [GateState.MEMBER] * (count - 1)
    assert world.drawn == 1


def test_a_rank_that_dies_ends_all_and_they_come_back_in_a_new_generation() -> None:
    world = World()
    world.until_open()
    first = world.head.record.generation
    world.nodes[1].phase = EnginePhase.EXITED
    assert world.until_closed() <= 2
    assert "n1" in world.head.record.reason
    world.nodes[1].phase = EnginePhase.ABSENT
    world.until_open()
    assert world.head.record.generation not in ("", first)


def test_a_fault_of_one_node_ends_all_and_keeps_them_from_starting_until_it_is_gone() -> None:
    world = World(3)
    world.until_open()
    world.nodes[2].faults = ("gpu.lost gpu3: lost",)
    assert world.until_closed() <= 2
    world.second(60)
    assert not world.open and all(node.phase is EnginePhase.ABSENT for node in world.nodes)
    assert "n2" in world.head.word.summary and "gpu.lost" in world.head.word.summary
    world.nodes[2].faults = ()
    world.until_open()


@pytest.mark.parametrize(("cut_s", "closes"), [(5, False), (13, False), (20, True)])
def test_a_blink_of_the_management_link_is_borne_and_a_cut_is_not(cut_s: int, closes: bool) -> None:
    world = World()
    world.until_open()
    generation = world.head.record.generation
    world.cut.add((0, 1))
    was_open = [world.open]
    for _ in range(cut_s):
        world.second()
        was_open.append(world.open)
    assert (False in was_open) is closes
    world.cut.clear()
    world.until_open()
    assert (world.head.record.generation == generation) is not closes


def test_a_cut_data_path_closes_soon_and_ends_the_generation_later() -> None:
    world = World()
    world.until_open()
    generation = world.head.record.generation
    world.data_cut.add((0, 1))
    assert world.until_closed() in (5, 6, 7)
    assert "data path" in world.head.word.summary
    assert world.head.phase is EnginePhase.WARM, "the rank is kept for a while"
    world.data_cut.clear()
    assert world.until_open() <= 3
    assert world.head.record.generation == generation
    world.data_cut.add((0, 1))
    world.second(18)
    assert world.head.phase is EnginePhase.ABSENT
    world.data_cut.clear()
    world.until_open()


def test_a_data_path_between_two_followers_counts_too() -> None:
    world = World(3)
    world.until_open()
    world.data_cut.add((1, 2))
    assert world.until_closed() <= 18
    world.data_cut.clear()
    world.until_open()


def test_members_that_differ_do_not_start_and_say_in_what() -> None:
    world = World()
    world.nodes[1].driver = "570"
    world.second(30)
    assert world.drawn == 0
    assert world.head.word.verdict is Verdict.FAIL
    assert world.head.word.summary == "NVIDIA driver is 580 here and 570 on n1 (rank 1)"


def test_an_agent_that_hangs_or_dies_is_silence() -> None:
    world = World()
    world.until_open()
    world.nodes[1].alive = False
    assert 15 <= world.until_closed() <= 17
    assert "silent" in world.head.record.reason


def test_an_agent_that_restarts_adopts_its_rank_and_the_head_stays_open() -> None:
    world = World()
    world.until_open()
    node = world.nodes[1]
    generation = node.record.generation
    node.alive = False
    world.second(3)
    node.alive, node.gate, node.phase = True, GateState.BOOTING, EnginePhase.STARTING
    node.record = GroupRecord(generation=generation, since_mono_s=world.now)
    for _ in range(6):
        world.second()
        assert world.open
    assert world.head.record.generation == generation
    assert node.record.reason == "adopted"


def _go(**more: object) -> GroupRecord:
    return GroupRecord(Stage.GO, "g1", 1000.0, ran=True, came_up=True, **more)  # type: ignore[arg-type]


def test_a_start_that_takes_too_long_ends_and_the_next_try_waits_longer_each_time() -> None:
    record = GroupRecord(Stage.GO, "g1", 1000.0, ran=True)
    well = Peer(
        "n1", 1, kit.says(stage="go", generation="g1", phase="starting"), 1060.5, error="", data_mono_s=1060.5
    )
    starting = Mine(EnginePhase.STARTING)
    after = decide(record, starting, (well,), kit.rules(0), 1061.0, str)
    assert (after.stage, after.reason) == (Stage.ENDING, "not all ranks came up within 60 s")
    waits = []
    for _ in range(3):
        after = decide(after, Mine(EnginePhase.ABSENT), (well,), kit.rules(0), 1062.0, str)
        waits.append(after.retry_at_mono_s - 1062.0)
        after = GroupRecord(Stage.ENDING, "g2", 1062.0, failures=after.failures)
    assert waits == [2.0, 4.0, 8.0]


def test_a_follower_takes_a_fresh_call_of_the_head_once() -> None:
    waiting = GroupRecord(Stage.WAITING, since_mono_s=1000.0)
    absent = Mine(EnginePhase.ABSENT)

    def called(record: GroupRecord, **more: object) -> Stage:
        head = Peer(
            "n0",
            0,
            kit.says(0, **{"stage": "go", "generation": "g7", "go_age_s": 1.0, **more}),
            1000.0,
            error="",
        )
        return decide(record, absent, (head,), kit.rules(1), 1001.0, str).stage

    assert called(waiting) is Stage.GO
    assert called(waiting, go_age_s=16.0) is Stage.WAITING
    assert called(waiting, stage="ending") is Stage.WAITING
    assert called(GroupRecord(Stage.WAITING, since_mono_s=1000.0, retired="g7")) is Stage.WAITING


def test_a_rank_that_nobody_knows_the_generation_of_is_ended() -> None:
    lost = GroupRecord(generation="", since_mono_s=1000.0)
    assert decide(lost, Mine(EnginePhase.STARTING), (), kit.rules(1), 1001.0, str).stage is Stage.ENDING
    known = GroupRecord(generation="g1", since_mono_s=1000.0)
    assert decide(known, Mine(EnginePhase.STARTING), (), kit.rules(1), 1001.0, str).stage is Stage.GO
    gone = decide(known, Mine(EnginePhase.ABSENT), (), kit.rules(1), 1001.0, str)
    assert (gone.stage, gone.retired) == (Stage.WAITING, "g1")
    looking = Mine(EnginePhase.ABSENT, recovered=False)
    assert decide(known, looking, (), kit.rules(1), 1001.0, str) is known


def test_the_words_of_others_do_not_come_back_to_them() -> None:
    told = Peer(
        "n1",
        1,
        kit.says(stage="go", generation="g1", phase="warm", trouble="heat"),
        1001.0,
        error="",
        data_mono_s=1001.0,
    )
    found = troubles(_go(), Mine(EnginePhase.WARM), (told,), kit.rules(0), 1002.0)
    assert (found.closes, found.own, found.ends) == ("n1 (rank 1): heat", "", "")


def test_a_member_that_is_borne_hides_none_that_has_been_away_for_too_long() -> None:
    away = {"gate": "preflight"}
    first = {"node": "n1", "rank": 1, "served_s": 2.0, "status": away}
    others = [{"node": "n2", "rank": 2, "served_s": 3.0, "status": away}, {"node": "n3", "rank": 3}]
    word = word_on(observation({"peers": [first, *others]}, 2000.0), 5.0)
    assert (word.verdict, "n1 (rank 1)" in word.summary) == (Verdict.WARN, True)
    others[0]["served_s"] = 16.0
    word = word_on(observation({"peers": [first, *others]}, 2000.0), 5.0)
    assert (word.verdict, "n2 (rank 2) has not served" in word.summary) == (Verdict.FAIL, True)


events = st.lists(
    st.tuples(
        st.sampled_from(["cut", "heal", "data", "die", "fault", "mend", "hang", "wake", "wait"]),
        st.integers(0, 2),
        st.integers(1, 20),
    ),
    max_size=14,
)


@settings(max_examples=30, deadline=None)
@given(script=events)
def test_whatever_happens_the_head_is_never_open_without_all_and_comes_back(
    script: list[tuple[str, int, int]],
) -> None:
    world = World(3)
    for what, rank, seconds in script:
        _play(world, what, rank)
        for _ in range(seconds):
            world.second()
            _never_open_without_all(world)
    for node in world.nodes:
        node.alive, node.faults = True, ()
        node.phase = EnginePhase.ABSENT if node.phase is EnginePhase.EXITED else node.phase
    world.cut.clear()
    world.data_cut.clear()
    world.until_open(600)


def _play(world: World, what: str, rank: int) -> None:
    node, pair = world.nodes[rank], [(0, 1), (0, 2), (1, 2)][rank]
    match what:
        case "cut":
            world.cut.add(pair)
        case "data":
            world.data_cut.add(pair)
        case "heal":
            world.cut.clear()
            world.data_cut.clear()
        case "die" if node.phase in kit.RUNS:
            node.phase = EnginePhase.EXITED
        case "mend":
            node.faults = ()
            node.phase = EnginePhase.ABSENT if node.phase is EnginePhase.EXITED else node.phase
        case "fault":
            node.faults = ("gpu.lost gpu0: lost",)
        case "hang" | "wake":
            node.alive = what == "wake"


def _never_open_without_all(world: World) -> None:
    """Open: every rank is of the head's generation and warm now, or was within the timeout."""
    if not world.open or not world.head.alive:
        return
    for peer in world.head.peers.values():
        assert peer.served_mono_s is not None
        assert world.now - peer.served_mono_s <= kit.TIMEOUT_S + 1
        assert peer.status is not None and peer.status.generation == world.head.record.generation
