"""What a prefill-decode pair answers: readiness, weight, headers, reasons, age; pure, by the publisher."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import gate_kit as kit
import pytest
from server_kit import MAX_AGE_S, HandTime, profile, published, record

from agent.commands.status import show_status
from agent.holds import EngineHolds
from agent.model import GateState as S
from agent.node_profile import Mode, NodeProfile
from agent.pairs import pair_answers
from agent.publisher import Publisher
from agent.status_view import metrics_text, status_view

ENGINES = ("p0", "p1", "d0", "d1")


def _profile(min_prefill: int = 1, min_decode: int = 1) -> NodeProfile:
    pair = {
        "prefill": ["p0", "p1"],
        "decode": ["d0", "d1"],
        "min_prefill": min_prefill,
        "min_decode": min_decode,
    }
    plain = profile(ENGINES)
    return NodeProfile.model_validate({**plain.model_dump(), "pairs": {"glm": pair}})


class Node:
    """A publisher with four engines, which the test puts into states."""

    def __init__(self) -> None:
        self.time = HandTime()
        self.publisher = Publisher(self.time)

    def show(self, *states: S, of: NodeProfile | None = None, **more: Any) -> None:
        """Publish the states of p0, p1, d0, d1."""
        records = [
            record(state, engine, blockers=(kit.HEAT,) if state in (S.FAILED, S.QUARANTINED) else (), **more)
            for engine, state in zip(ENGINES, states, strict=True)
        ]
        made = published(*records, at_s=self.time.now_s)
        self.publisher.publish(replace(made, pairs=pair_answers(of or _profile(), made.answers)))

    def body(self) -> dict[str, Any]:
        reply = self.publisher.ready("glm")
        assert reply.status == 503
        return dict(json.loads(reply.body))


@pytest.fixture
def node() -> Node:
    return Node()


UP, SOFT, DOWN = S.SERVING, S.DEGRADED, S.FAILED


@pytest.mark.parametrize(
    ("states", "least", "status", "line"),
    [
        ((UP, UP, UP, UP), (1, 1), 200, "up ready 100%"),
        ((UP, UP, UP, UP), (2, 2), 200, "up ready 100%"),
        ((UP, DOWN, UP, UP), (1, 1), 200, "up ready 50%"),
        ((UP, DOWN, UP, UP), (2, 1), 503, "down #gpu.thermal_margin"),
        ((SOFT, UP, UP, UP), (2, 2), 200, "up ready 75%"),
        ((SOFT, DOWN, UP, SOFT), (1, 1), 200, "up ready 25%"),
        ((DOWN, DOWN, UP, UP), (1, 1), 503, "down #gpu.thermal_margin"),
        ((UP, UP, S.DRAINING, S.DRAINING), (1, 1), 503, "drain"),
        ((UP, UP, S.MAINTENANCE, S.DRAINING), (1, 1), 503, "maint"),
        ((UP, UP, UP, S.WARMING), (1, 2), 503, "down #warming"),
        ((UP, UP, S.BOOTING, S.LAUNCHING), (1, 1), 503, "down #booting"),
    ],
)
def test_the_rule(node: Node, states: tuple[S, ...], least: tuple[int, int], status: int, line: str) -> None:
    node.show(*states, of=_profile(*least))
    reply = node.publisher.ready("glm")
    assert (reply.status, node.publisher.agent_line("glm")) == (status, line)
    assert ("x-envoy-degraded" in reply.headers) == (status == 200 and set(states) != {UP})
    assert ("x-envoy-immediate-health-check-fail" in reply.headers) == (status == 503)


def test_every_state_but_two_counts_as_missing(node: Node) -> None:
    for state in S:
        node.show(state, state, UP, UP)
        assert (node.publisher.ready("glm").status == 200) == (state in (UP, SOFT))


def test_what_is_missing_for_what(node: Node) -> None:
    node.show(UP, S.WARMING, DOWN, S.DRAINING, of=_profile(2, 1))
    body = node.body()
    assert body["state"] == "failed"
    assert [(b["check"], b["subject"]) for b in body["blocking"]] == [
        ("pair.prefill", "pair:glm"),
        ("pair.decode", "pair:glm"),
        ("gate.warming", "engine:p1"),
        ("gpu.thermal_margin", "gpu3"),
        ("gate.draining", "engine:d1"),
    ]
    assert [b["summary"] for b in body["blocking"][:2]] == [
        "1 of 2 prefill engines ready, 2 needed; missing: p1 (warming)",
        "0 of 2 decode engines ready, 1 needed; missing: d0 (failed), d1 (draining)",
    ]
    assert all(set(b) == {"check", "subject", "summary", "action"} for b in body["blocking"])


def test_without_a_name_it_is_every_engine(node: Node) -> None:
    node.show(UP, DOWN, UP, UP)
    assert (node.publisher.ready("glm").status, node.publisher.ready().status) == (200, 503)
    node.show(UP, UP, UP, UP)
    assert node.publisher.ready().status == 200


def test_a_stale_pair_is_not_ready(node: Node) -> None:
    node.show(UP, UP, UP, UP)
    node.time.now_s += MAX_AGE_S
    assert node.publisher.ready("glm").status == 200
    node.time.now_s += 0.1
    assert node.body()["blocking"][0]["check"] == "gate.age"
    assert node.publisher.agent_line("glm") == "down #stale"
    assert node.publisher.ready("glm").status == 503


def test_an_unknown_name_lists_the_pairs_too(node: Node) -> None:
    node.show(UP, UP, UP, UP)
    reply = node.publisher.ready("kimi")
    assert reply.status == 404
    assert json.loads(reply.body)["pairs"] == ["glm"]
    assert node.publisher.agent_line("kimi") == "down #booting"


def test_a_forced_engine_makes_a_forced_pair(node: Node) -> None:
    node.show(SOFT, UP, UP, UP, forced=True, holds=EngineHolds(force_open=kit.force(2000.0)))
    assert "x-nodegate-forced-open" in node.publisher.ready("glm").headers
    assert node.publisher.agent_line("glm").endswith("#FORCED-OPEN")


def test_mode_observe_opens_no_pair(node: Node) -> None:
    watching = [replace(record(S.PREFLIGHT, e), config=kit.config(Mode.OBSERVE, e)) for e in ENGINES]
    made = published(*watching, at_s=node.time.now_s, mode=Mode.OBSERVE)
    node.publisher.publish(replace(made, pairs=pair_answers(_profile(), made.answers)))
    assert node.body()["state"] == "observe"


def test_the_status_for_people_has_a_table_of_pairs(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.show(UP, DOWN, UP, UP)
    show_status(status_view(node.publisher))
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("glm")]
    assert row.split(maxsplit=3)[:3] == ["glm", "degraded", "yes"]
    assert row.endswith("p1 is failed")


def test_status_and_metrics_say_what_is_answered(node: Node) -> None:
    node.show(UP, DOWN, UP, UP)
    (pair,) = status_view(node.publisher)["pairs"]
    assert (pair["pair"], pair["ready"], pair["state"], pair["weight_percent"]) == (
        "glm",
        True,
        "degraded",
        50,
    )
    assert pair["prefill"] == {"need": 1, "ready": ["p0"], "missing": ["p1"]}
    assert pair["reason"] == "p1 is failed"
    assert b'nodegate_pair_ready{pair="glm"} 1.0' in metrics_text(node.publisher)
    node.time.now_s += MAX_AGE_S + 1
    (pair,) = status_view(node.publisher)["pairs"]
    assert (pair["ready"], pair["weight_percent"], pair["agent_check"]) == (False, 0, "down #stale")
    assert pair["reason"] == "the answer is too old"
    assert b'nodegate_pair_ready{pair="glm"} 0.0' in metrics_text(node.publisher)
