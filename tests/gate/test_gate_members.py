"""Gates of ranks of a group: a follower is never ready, and a generation that is over stops its rank."""

from __future__ import annotations

from dataclasses import replace

import gate_kit as kit
import pytest
from gate_kit import Bench

from agent.errors import IllegalTransition
from agent.evaluate import Judgement
from agent.gate_record import Drain, OpenByForce, StartEngine, StopEngine
from agent.model import EnginePhase, GateState

WAITS = replace(kit.GROUP, verdict=kit.Verdict.UNKNOWN)
ENDS = Judgement(immediate=(kit.GROUP,), admission_blockers=(kit.GROUP,))


def test_a_follower_becomes_a_member_and_is_never_ready() -> None:
    bench = Bench(follower=True)
    record = bench.serve()
    assert record.state is GateState.MEMBER
    assert bench.seen[-2] is GateState.WARMING
    assert record.in_service and not record.ready
    # Like an open gate it bears what only keeps a closed one closed, and soft faults.
    assert bench.say(Judgement(admission_blockers=(kit.DRIFT,))).state is GateState.MEMBER
    assert bench.say(Judgement(soft=(kit.MARGIN,))).state is GateState.MEMBER
    assert bench.say(Judgement(hard=(kit.HEAT,))).state is GateState.FAILED
    assert bench.say(kit.CLEAN).state is GateState.MEMBER


def test_a_follower_cannot_be_forced_open() -> None:
    bench = Bench(follower=True)
    bench.serve()
    with pytest.raises(IllegalTransition, match="only the head of a group is ever ready"):
        bench.feed(OpenByForce(kit.force(bench.now + 60)))


def test_a_drained_member_leaves_the_head_its_grace() -> None:
    bench = Bench(follower=True)
    bench.serve()
    assert bench.feed(Drain(kit.HOLD)).state is GateState.DRAINING
    assert not [action for action in bench.asked if isinstance(action, StopEngine)]
    bench.wait(kit.GRACE_S + 1)
    assert [action for action in bench.asked if isinstance(action, StopEngine)]


@pytest.mark.parametrize("follower", [False, True])
def test_a_generation_that_is_over_stops_the_rank_at_once(follower: bool) -> None:
    bench = Bench(follower=follower)
    bench.serve()
    bench.rank_over = True
    assert bench.say(ENDS).state is GateState.FAILED
    assert {type(action) for action in bench.asked} == {StopEngine}
    bench.be(EnginePhase.STOPPING)
    bench.asked.clear()
    bench.rank_over = False
    bench.say(Judgement(admission_blockers=(WAITS,)))
    assert bench.be(EnginePhase.ABSENT).state is GateState.PREFLIGHT
    assert not bench.asked, "no rank starts before the next generation"
    bench.say(kit.CLEAN)
    assert any(isinstance(action, StartEngine) for action in bench.asked)


def test_a_rank_that_is_still_loading_is_stopped_too() -> None:
    bench = Bench(follower=True)
    bench.settle()
    bench.be(EnginePhase.STARTING)
    bench.asked.clear()
    bench.rank_over = True
    bench.say(ENDS)
    assert {type(action) for action in bench.asked} == {StopEngine}


def test_a_head_that_is_warm_first_is_seen_to_wait_for_the_others() -> None:
    bench = Bench()
    bench.settle()
    bench.be(EnginePhase.STARTING)
    bench.be(EnginePhase.UP)
    bench.judgement = Judgement(admission_blockers=(WAITS,))
    record = bench.be(EnginePhase.WARM)
    assert (record.state, record.reason) == (
        GateState.WARMING,
        "engine.group engine:glm: node-b has been silent for 16 s",
    )
    assert bench.say(kit.CLEAN).state is GateState.SERVING


def test_force_open_does_not_override_the_group() -> None:
    bench = Bench()
    bench.serve()
    bench.feed(OpenByForce(kit.force(bench.now + 60)))
    assert bench.say(ENDS).state is GateState.FAILED
