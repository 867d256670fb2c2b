"""The published answers: the state table of the interface, ages, and several engines."""

from __future__ import annotations

import json
from dataclasses import replace

import gate_kit as kit
import pytest
from server_kit import MAX_AGE_S, HandTime, profile, published, record

from agent.gate_record import OPEN
from agent.holds import EngineHolds
from agent.model import GateState as S
from agent.node_profile import Mode
from agent.publisher import Publisher, answers_of

FAIL_AT_ONCE = "x-envoy-immediate-health-check-fail"


@pytest.fixture
def time() -> HandTime:
    return HandTime()


@pytest.fixture
def publisher(time: HandTime) -> Publisher:
    return Publisher(time)


#: State -> (status, agent-check line), as docs/interfaces.md has them.
TABLE = {
    S.SERVING: (200, "up ready 100%"),
    S.DEGRADED: (200, "up ready 50%"),
    S.DRAINING: (503, "drain"),
    S.BOOTING: (503, "down #booting"),
    S.PREFLIGHT: (503, "down #preflight"),
    S.LAUNCHING: (503, "down #launching"),
    S.WARMING: (503, "down #warming"),
    S.FAILED: (503, "down #gpu.thermal_margin"),
    S.QUARANTINED: (503, "down #gpu.thermal_margin"),
    S.STOPPED: (503, "down #stopped"),
    S.MAINTENANCE: (503, "maint"),
    S.MEMBER: (503, "down #member"),
}


def test_the_table_has_every_state() -> None:
    assert set(TABLE) == set(S)


@pytest.mark.parametrize("state", list(S))
def test_each_state_answers_as_the_interface_says(publisher: Publisher, time: HandTime, state: S) -> None:
    status, line = TABLE[state]
    blockers = (kit.HEAT,) if state in (S.FAILED, S.QUARANTINED, S.DEGRADED) else ()
    publisher.publish(published(record(state, blockers=blockers), at_s=time.now_s))
    for reply in (publisher.ready(), publisher.ready("glm")):
        assert reply.status == status
        assert (reply.status == 200) == (state in OPEN)
        assert (FAIL_AT_ONCE in reply.headers) == (status == 503)
        assert ("x-envoy-degraded" in reply.headers) == (state is S.DEGRADED)
        if status == 503:
            body = json.loads(reply.body)
            assert (body["ready"], body["state"], body["age_s"]) == (False, state.value, 0.0)
            assert set(body["blocking"][0]) == {"check", "subject", "summary", "action"}
        else:
            assert reply.body == b"ok\n"
    assert publisher.agent_line("glm") == line


def test_nothing_is_ready_or_alive_before_the_first_publication(publisher: Publisher) -> None:
    assert publisher.ready().status == 503
    assert publisher.ready("glm").status == 503
    assert publisher.live().status == 503
    assert publisher.agent_line("glm") == "down #booting"


def test_the_age_is_computed_when_it_is_asked_for(publisher: Publisher, time: HandTime) -> None:
    publisher.publish(published(record(S.SERVING), at_s=time.now_s))
    time.now_s += MAX_AGE_S
    assert publisher.ready().status == 200
    time.now_s += 0.1
    reply = publisher.ready("glm")
    body = json.loads(reply.body)
    assert (reply.status, body["state"], body["age_s"]) == (503, "serving", 5.1)
    assert body["blocking"][0]["summary"] == "the answer is 5 s old, 5 s is the most"
    assert publisher.agent_line("glm") == "down #stale"


def test_an_answer_from_the_future_is_not_ready(publisher: Publisher, time: HandTime) -> None:
    publisher.publish(published(record(S.SERVING), at_s=time.now_s + 60))
    assert publisher.ready().status == 503


def test_a_stale_drain_stays_a_drain(publisher: Publisher, time: HandTime) -> None:
    publisher.publish(published(record(S.DRAINING), at_s=time.now_s))
    time.now_s += 100
    assert publisher.agent_line("glm") == "drain"


def test_alive_while_the_main_loop_beats(publisher: Publisher, time: HandTime) -> None:
    publisher.beat()
    time.now_s += 4.9
    assert publisher.live().status == 200
    time.now_s += 0.2
    reply = publisher.live()
    assert reply.status == 503
    assert b"has not beaten for 5.1 s" in reply.body


def test_all_engines_must_be_ready(publisher: Publisher, time: HandTime) -> None:
    heat = record(S.FAILED, "kimi", blockers=(kit.HEAT,))
    publisher.publish(published(record(S.SERVING), heat, at_s=time.now_s))
    assert publisher.ready("glm").status == 200
    reply = publisher.ready()
    body = json.loads(reply.body)
    assert (reply.status, body["state"]) == (503, "failed")
    assert [b["check"] for b in body["blocking"]] == ["gpu.thermal_margin"]
    publisher.publish(published(record(S.SERVING), record(S.DEGRADED, "kimi"), at_s=time.now_s))
    assert publisher.ready().status == 200
    assert "x-envoy-degraded" in publisher.ready().headers


def test_an_unknown_engine_is_404(publisher: Publisher, time: HandTime) -> None:
    publisher.publish(published(record(S.SERVING), at_s=time.now_s))
    reply = publisher.ready("glm2")
    assert reply.status == 404
    assert json.loads(reply.body) == {"error": "there is no engine 'glm2'", "engines": ["glm"]}


def test_no_engines_is_not_ready(publisher: Publisher, time: HandTime) -> None:
    publisher.publish(published(at_s=time.now_s))
    reply = publisher.ready()
    assert reply.status == 503
    assert "no engines" in json.loads(reply.body)["blocking"][0]["summary"]


def test_a_forced_gate_is_loud(publisher: Publisher, time: HandTime) -> None:
    holds = EngineHolds(force_open=kit.force(2000.0))
    forced = record(S.DEGRADED, forced=True, holds=holds, blockers=(kit.HEAT,))
    publisher.publish(published(forced, at_s=time.now_s))
    reply = publisher.ready("glm")
    assert reply.status == 200
    assert reply.headers["x-nodegate-forced-open"] == "until=3000 the fleet is down"
    assert publisher.agent_line("glm") == "up ready 50% #FORCED-OPEN"


def test_what_goes_into_headers_and_lines_is_plain_ascii(publisher: Publisher, time: HandTime) -> None:
    nasty = replace(kit.force(2000.0), reason="a\r\nx-evil: 1 ü")
    forced = record(S.DEGRADED, forced=True, holds=EngineHolds(force_open=nasty))
    publisher.publish(published(forced, at_s=time.now_s))
    assert publisher.ready().headers["x-nodegate-forced-open"] == "until=3000 a??x-evil: 1 ?"
    strange = replace(kit.HEAT, check="x\nup")
    publisher.publish(published(record(S.FAILED, blockers=(strange,)), at_s=time.now_s))
    assert publisher.agent_line("glm") == "down #x?up"


def test_observe_says_what_would_block(publisher: Publisher, time: HandTime) -> None:
    watching = replace(
        record(S.PREFLIGHT, blockers=(kit.HEAT,)), config=kit.config(Mode.OBSERVE), reason="mode observe: x"
    )
    publisher.publish(published(watching, at_s=time.now_s, mode=Mode.OBSERVE))
    body = json.loads(publisher.ready("glm").body)
    assert (body["state"], [b["check"] for b in body["blocking"]]) == (
        "observe",
        ["gate.mode", "gpu.thermal_margin"],
    )


def test_the_degraded_weight_is_the_profiles() -> None:
    answers = answers_of({"glm": record(S.DEGRADED)}, profile(gate={"degraded_weight_percent": 20}))
    assert answers["glm"].agent_line == "up ready 20%"


def test_a_simulated_node_says_so(publisher: Publisher, time: HandTime) -> None:
    publisher.publish(published(record(S.SERVING), at_s=time.now_s, simulated=True))
    assert publisher.ready().headers["x-nodegate-simulated"] == "true"
