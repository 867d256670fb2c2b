"""A real load curve of an H200 must look healthy to every GPU check: the power cap is normal life."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from check_cases import run_check
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode

from agent.checks.registry import Check, load_all
from agent.model import Verdict

LOAD = json.loads((Path(__file__).parent / "h200_matmul_load.json").read_text(encoding="utf-8"))
GROUP_OF = {
    "temperature_c": "thermal",
    "memory_temperature_c": "thermal",
    "margin_c": "thermal",
    "used_b": "memory",
}
CHECKS = [check for check in load_all().values() if check.id.startswith("gpu.")]


def moments(node: FakeNode) -> Iterator[float]:
    """Set all GPUs to one moment of the curve after another; yields its time."""
    start_s = node.clock.now_s
    cap_ns = 0
    for row in LOAD["rows"]:
        values: dict[str, Any] = dict(zip(LOAD["columns"], row, strict=True))
        time_s = values.pop("time_s")
        node.clock.now_s = start_s + time_s
        if values["event_reasons"] & 4:
            cap_ns += 600_000_000
        for slot in range(8):
            for field, value in values.items():
                node.set(f"nvml.gpus.{slot}.{GROUP_OF.get(field, 'power')}.{field}", value)
            node.set(f"nvml.gpus.{slot}.slowdowns.sw_power_cap_ns", cap_ns)
        yield time_s


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_matrix_product_at_the_power_cap_is_normal(check: Check) -> None:
    node, profile = h200_node(), h200_profile({"gpus": {"max_sm_clock_mhz": 1980}})
    due_s = 0.0
    seen: set[Verdict] = set()
    for time_s in moments(node):
        if time_s < due_s:
            continue
        due_s = time_s + min(check.period_s, 5.0)
        for finding in run_check(check, node, profile).values():
            assert finding.verdict not in (Verdict.WARN, Verdict.FAIL), f"{time_s} s: {finding}"
            seen.add(finding.verdict)
    assert Verdict.PASS in seen


def test_the_curve_is_a_load_at_the_cap() -> None:
    """What the test above is about: busy, capped, and far below the highest clock."""
    busy = [dict(zip(LOAD["columns"], row, strict=True)) for row in LOAD["rows"]]
    busy = [row for row in busy if row["gpu_utilization_percent"] >= 99 and row["time_s"] < 30]
    assert len(busy) > 30
    assert {row["event_reasons"] for row in busy} == {4}
    assert max(row["sm_clock_mhz"] for row in busy) <= 1530
