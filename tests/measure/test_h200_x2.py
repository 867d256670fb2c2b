"""What two real H200s did (h200-x2/README.md), judged again from the readings and reports that were kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_profile
from measure_kit import Bench, PlayedWorkload, without_threads

from agent.measure.bandwidth import bus_gb_s
from agent.model import Verdict

SEEN = json.loads((Path(__file__).parent / "h200-x2" / "measured.json").read_text())
ALL_REDUCE, SMALL, FULL = SEEN["runs"]
TWO = h200_profile({"nccl": {"min_bus_gb_s": 260}})


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


def again(run: dict[str, Any], spoil: Any = None) -> Any:
    """The load once more: each turn is a second with its readings and the reports of that second."""
    frames = [frame for frame in run["frames"] if len(frame["gpus"]) == 2]
    reports, script = list(run["reports"]), []
    idle = len(frames) - max(int(report["at_s"]) for report in reports) - 2
    for second in range(len(frames) + 5):
        now = [report for report in reports if report["at_s"] < second - idle]
        reports = reports[len(now) :]
        script.append([json.dumps(report) for report in now])
    # The engine kimi of the fake node has the slots 4 and 5 for the two GPUs.
    profile = h200_profile({"engines": {"kimi": {"gpus": [4, 5]}}})
    bench = Bench(profile=profile, workloads=[PlayedWorkload(script)])

    def second(turn: int) -> None:
        frame = frames[min(turn, len(frames)) - 1]
        for gpu, groups in frame["gpus"].items():
            for group, values in groups.items():
                for name, value in values.items():
                    bench.node.set(f"nvml.gpus.{4 + int(gpu)}.{group}.{name}", value)
        if spoil is not None:
            spoil(bench.node, turn)

    bench.each = second
    second(1)
    return bench.run("load.gpu", **{**run["params"], "duration_s": 80, "engine": "kimi"})


def test_nccl_gave_what_the_platform_promises() -> None:
    line = json.loads(SEEN["all_reduce_worker"]["lines"][0])
    assert line["right"] is True and line["world"] == 2
    assert line["bus_gb_s"] == pytest.approx(bus_gb_s(2, line["bytes"], line["seconds_each"]))
    (value,) = ALL_REDUCE["values"]
    assert value["expected"] == ">= 260" and value["value"] > 300 and ALL_REDUCE["verdict"] == "PASS"
    outcome = Bench(profile=TWO, workloads=[PlayedWorkload([[json.dumps(line)]])]).run(
        "nccl.all_reduce", gpus=[0, 1]
    )
    assert outcome.verdict is Verdict.PASS and f"{line['bus_gb_s']:.1f} GB/s" in outcome.summary


@pytest.mark.parametrize("run", [SMALL, FULL], ids=["small", "full"])
def test_the_loads_pass_again(run: dict[str, Any]) -> None:
    outcome = again(run)
    assert outcome.verdict is Verdict.PASS, outcome.summary
    assert run["verdict"] == "PASS" and run["in_use_after"] == ""
    seen = {(value["name"], value["subject"]): value["value"] for value in run["values"]}
    for value in outcome.values:
        if value.name == "throughput":
            then = seen[value.name, f"gpu{int(value.subject.removeprefix('gpu')) - 4}"]
            assert value.value == pytest.approx(then, rel=0.01)


def test_a_full_load_at_the_power_cap_is_no_throttling() -> None:
    reasons = {frame["gpus"]["0"]["power"]["event_reasons"] for frame in FULL["frames"][20:60]}
    clocks = [frame["gpus"]["0"]["power"]["sm_clock_mhz"] for frame in FULL["frames"][20:60]]
    assert reasons == {0x4} and min(clocks) > 1188 and max(clocks) < 1700


def test_the_same_load_with_one_moment_of_thermal_slowdown_fails() -> None:
    def spoil(node: Any, turn: int) -> None:
        if turn > 40:
            node.set("nvml.gpus.5.slowdowns.hw_thermal_ns", 30_000_000)

    outcome = again(FULL, spoil)
    assert outcome.verdict is Verdict.FAIL
    assert outcome.summary == "gpu5: throttled: hardware thermal slowdown for 0.03 s"


def test_nothing_stayed_on_the_gpus() -> None:
    assert SEEN["called_off"]["verdict"] == "UNKNOWN" and SEEN["called_off"]["in_use_after"] == ""
    assert SEEN["called_off"]["returned_after_call_s"] < 2
    assert SEEN["killed_runner"]["in_use_before"] and SEEN["killed_runner"]["in_use_after"] == ""
    assert SEEN["killed_runner"]["free_after_s"] < 2
    assert (
        SEEN["refused"]["summary"].endswith("nothing was measured")
        and SEEN["refused"]["verdict"] == "UNKNOWN"
    )
