"""Incidents 2, 6 and 15 as the shipped checklists meet them: where each stops, that the gate stays closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from checklist_kit import Bench, jump_measures, step_of
from fake_h200 import h200_profile
from fake_sources import FakeNode

from agent.checklist.load import load_named
from agent.checklist.measure import MeasureContext, MeasureOutcome, measures
from agent.checklist.step_question import Unanswered
from agent.model import Verdict
from agent.profile_loader import LoadedProfile

#: The cooling of the node is measured by nothing that nodegate can ask.
NO_SENSORS = {
    "bmc": {
        "redfish": None,
        "cooling": {
            "units": None, "inlet_max_c": None, "outlet_max_c": None, "delta_max_c": None,
            "flow_min_l_per_min": None,
        },
    }
}  # fmt: skip
NO_FLOW: list[dict[str, Any]] = [
    {
        "at_s": 0,
        "bmc": {"node": {"/redfish/v1/Chassis/Chassis_0/Sensors/Coolant_Flow": {"Reading": 18.0}}},
    }
]
#: GPUs look normal for a minute of load, then gpu3 reaches its limit and slows down.
HOTSPOT: list[dict[str, Any]] = [
    {
        "at_s": 60,
        "ramp_s": 30,
        "set": {"nvml.gpus.3.thermal.temperature_c": 97, "nvml.gpus.3.thermal.margin_c": -7},
    },
    {"at_s": 90, "set": {"nvml.gpus.3.power.event_reasons": 0x48, "nvml.gpus.3.power.sm_clock_mhz": 900}},
]
#: Two degrees a minute at the same power: bad air, seen after a quarter of an hour.
ROOM_AIR: list[dict[str, Any]] = [
    {"at_s": 0, "set": {"nvml.gpus.3.power.draw_w": 690.0, "nvml.gpus.3.power.event_reasons": 4}},
    {
        "at_s": 1,
        "ramp_s": 1500,
        "set": {"nvml.gpus.3.thermal.temperature_c": 96, "nvml.gpus.3.thermal.margin_c": -6},
    },
]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The node of a test, in maintenance; its scenario begins with the run."""
    wanted = dict(request.param)
    look_s = wanted.pop("look_s", 5.0)
    made = Bench(tmp_path, **wanted)
    jump_measures(monkeypatch, made.clock, look_s)
    made.daemon.enter_maintenance()
    made.begin_scenario()
    yield made
    made.close()


def stays_closed(bench: Bench, step: str) -> None:
    """Maintenance holds and names the step, on disk too."""
    held = bench.daemon.gates.maintenance
    assert held is not None
    assert held.reason.startswith("coolant loop [run ") and f" failed at {step}: " in held.reason
    assert bench.daemon.states() == ["maintenance"]
    assert bench.daemon.asked_soak_s == []


@pytest.mark.parametrize("bench", [{"steps": NO_FLOW}], indirect=True)
def test_2_the_bmc_tells_that_no_coolant_flows(bench: Bench) -> None:
    record = bench.run("post-maintenance")
    assert record.verdict is Verdict.FAIL
    coolant = step_of(record, "coolant")
    assert coolant.verdict is Verdict.FAIL and "flow 18 L/min" in coolant.summary
    assert "cooling team" in coolant.hint
    assert [step.id for step in record.steps if step.attempts] == ["coolant"]
    stays_closed(bench, "coolant")


@pytest.mark.parametrize("bench", [{"overlay": NO_SENSORS}], indirect=True)
def test_2_without_a_sensor_a_person_is_asked(bench: Bench) -> None:
    with pytest.raises(Unanswered, match=r"step coolant-seen asks: .* coolant flow"):
        bench.run("post-maintenance")
    told = bench.store.read(bench.store.runs()[-1])
    assert (told.verdict, step_of(told, "coolant").verdict) == (None, Verdict.SKIP)
    bench.sleep(5)
    record = bench.run("post-maintenance", {"coolant-seen": "no"})
    answer = step_of(record, "coolant-seen").answer
    assert record.verdict is Verdict.FAIL and answer is not None and answer.who == "anna"
    assert not step_of(record, "load").attempts
    stays_closed(bench, "coolant-seen")


@pytest.mark.parametrize("bench", [{"overlay": NO_SENSORS, "steps": HOTSPOT}], indirect=True)
def test_2_a_wrong_answer_is_caught_by_the_load(bench: Bench) -> None:
    record = bench.run("post-maintenance", {"coolant-seen": "flows"})
    load = step_of(record, "load")
    assert load.verdict is Verdict.FAIL and "gpu3" in load.summary
    assert {found.subject for found in load.findings if found.verdict is Verdict.FAIL} == {"gpu3"}
    hottest = next(c for c in record.curves if (c.name, c.subject) == ("gpu_temperature", "gpu3"))
    assert hottest.step == "load" and max(value for _, value in hottest.points) > 80
    assert step_of(record, "temperatures").verdict is Verdict.PASS
    assert not step_of(record, "gate").attempts
    stays_closed(bench, "load")


@pytest.mark.parametrize("bench", [{"node": "h200-roce", "steps": ROOM_AIR, "look_s": 20.0}], indirect=True)
def test_6_a_burn_in_sees_the_heat_that_three_minutes_do_not_show(bench: Bench) -> None:
    record = bench.run("burn-in", {"coolant-seen": "air-cooled"})
    load = step_of(record, "load")
    assert load.verdict is Verdict.FAIL and load.ended_wall_s and load.started_wall_s
    assert 600 < load.ended_wall_s - load.started_wall_s < 1700
    assert "gpu3" in load.summary and "air flow" in load.hint
    assert {step.id for step in record.steps if not step.attempts} == {"nccl", "after"}


def member(rank: int) -> dict[str, Any]:
    members = [{"node": "n0", "address": "10.0.0.1"}, {"node": "n1", "address": "10.0.0.2"}]
    group = {"rank": rank, "key_file": "/k", "members": members}
    return {"node": f"n{rank}", "mode": "manage", "engines": {"glm": {"group": group}, "kimi": None}}


def asked(
    monkeypatch: pytest.MonkeyPatch, rank: int, code: int, state: str, gate: dict[str, Any]
) -> MeasureOutcome:
    """What the step `answers` of the shipped checklists finds where /readyz answers so."""
    client = httpx.Client

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/status":
            return httpx.Response(200, json={"profile_hash": "h", "gates": [{"engine": "glm", **gate}]})
        assert request.url.path == "/readyz/glm"
        return (
            httpx.Response(code, text="ok\n") if code == 200 else httpx.Response(code, json={"state": state})
        )

    transport = httpx.MockTransport(answer)
    monkeypatch.setattr(
        "agent.checklist.gate_answers.httpx.Client", lambda **given: client(**given, transport=transport)
    )
    step = next(one for one in load_named("before-traffic", None).steps if one.id == "answers")
    test = measures()[step.measure]  # type: ignore[union-attr]
    context = MeasureContext(
        FakeNode({}).sources, LoadedProfile(h200_profile(member(rank)), "h", (), ()), 0.0, lambda _: None,
        lambda *_: None, lambda: False,
    )  # fmt: skip
    return test.run(context, test.params.model_validate(step.params))  # type: ignore[union-attr]


WELL = {"group": {"members": [{"node": "n1", "gate": "member", "error": ""}]}}
FAILED = {"group": {"members": [{"node": "n1", "gate": "failed", "error": ""}]}}


@pytest.mark.parametrize(
    ("rank", "code", "state", "gate", "verdict", "words"),
    [
        (1, 503, "member", {}, Verdict.PASS, "a rank behind its head"),
        (1, 200, "", {}, Verdict.FAIL, "would be taken for a replica"),
        (1, 503, "failed", {}, Verdict.FAIL, "its rank does not serve"),
        (0, 200, "", WELL, Verdict.PASS, "with 1 members behind it"),
        (0, 200, "", FAILED, Verdict.FAIL, "not every member is well: n1"),
        (0, 503, "failed", FAILED, Verdict.FAIL, "not ready"),
    ],
)
def test_15_only_the_head_answers_and_only_with_all_its_members(
    monkeypatch: pytest.MonkeyPatch, rank: int, code: int, state: str, gate: dict[str, Any], verdict: Verdict,
    words: str,
) -> None:  # fmt: skip
    outcome = asked(monkeypatch, rank, code, state, gate)
    assert outcome.verdict is verdict and words in outcome.findings[0].summary


def test_15_both_checklists_ask_the_gates_and_the_load_balancer() -> None:
    for name in ("before-traffic", "bring-up"):
        steps = load_named(name, None).steps
        assert [step.measure for step in steps if hasattr(step, "measure")].count("gate.answers") == 1  # type: ignore[union-attr]
    assert "load-balancer" in [step.id for step in load_named("before-traffic", None).steps]
