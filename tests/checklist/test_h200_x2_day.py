"""The shipped checklists on two real H200s with a real vLLM: their records, and the reports made of them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent.checklist.load import load_named
from agent.checklist.record import RunRecord
from agent.checklist.report import texts
from agent.model import Verdict

DAY = Path(__file__).with_name("h200-x2-day")


def record(name: str) -> RunRecord:
    return RunRecord.model_validate_json((DAY / f"{name}.json").read_bytes())


@pytest.mark.parametrize("name", ["before-traffic", "post-maintenance"])
def test_each_step_as_shipped_was_run_on_real_gpus(name: str) -> None:
    run = record(name)
    assert [step.id for step in run.steps] == [step.id for step in load_named(name, None).steps]
    assert not run.simulated and not run.shortened
    assert {step.verdict for step in run.steps} <= {Verdict.PASS, Verdict.WARN, Verdict.SKIP}


def test_what_post_maintenance_measured() -> None:
    run = record("post-maintenance")
    values = {
        (step.id, value.name, value.subject): value.value for step in run.steps for value in step.values
    }
    assert values["nccl", "bus_bandwidth", "gpu0-1"] == pytest.approx(326.3, abs=0.1)
    assert 60 < values["load", "throughput", "gpu1"] < 65
    load = next(step for step in run.steps if step.id == "load")
    assert {curve.subject for curve in run.curves if curve.step == "load"} >= {"gpu0", "gpu1"}
    assert load.ended_wall_s and load.started_wall_s and load.ended_wall_s - load.started_wall_s >= 180


def test_its_reports_show_it() -> None:
    made = texts(record("post-maintenance"))
    page = made["report.html"]
    assert "PASSED: all 14 steps, 6 not for this node" in page and page.count("<svg") >= 4
    assert "SIMULATED" not in page
    suite = ElementTree.fromstring(made["report.xml"])
    cases = suite.findall(".//testcase")
    assert len(cases) == 14 and not suite.findall(".//failure")


def test_the_node_came_back() -> None:
    told = json.loads((DAY / "told.json").read_text())
    codes = [(one["command"].split("--")[0].strip(), one["exit_code"]) for one in told["commands"]]
    assert codes[:5] == [
        ("checklist run before-traffic", 0), ("maintenance enter", 0), ("status", 1),
        ("checklist run post-maintenance", 0), ("status", 0),
    ]  # fmt: skip
    assert told["ready_at_the_end"] and told["exit_code"] == 0 and not told["processes_left"]
