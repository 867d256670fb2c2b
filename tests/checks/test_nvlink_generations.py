"""Fail closed on the Blackwell generation: what nvlink.ber reads is refused or garbled in turn."""

import math
from typing import Any

import pytest
from check_cases import run_check
from fake_h200 import h200_node, h200_profile
from fake_h200_fabric import BER_FIELDS, blackwell_ber
from fake_sources import FakeNode

from agent.checks.registry import load_all
from agent.model import Verdict

CHECK = load_all()["nvlink.ber"]
BAD: list[Any] = [
    *({"error": name} for name in ("TIMEOUT", "UNKNOWN", "NO_PERMISSION", "GPU_IS_LOST")),
    "garbage", "", None, math.nan, math.inf, [], {}, [None] * 18, ["x"] * 18, [-1] * 18, [10**30] * 18,
    [0] * 17,
]  # fmt: skip


def blackwell() -> FakeNode:
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.nvlink_errors", {"error": "NOT_SUPPORTED"})
        node.set(f"nvml.gpus.{slot}.nvlink_ber", blackwell_ber())
    return node


@pytest.mark.parametrize("field", BER_FIELDS)
def test_no_bad_value_passes(field: str) -> None:
    for value in BAD:
        node = blackwell()
        run_check(CHECK, node, h200_profile())
        node.clock.now_s += 60
        node.set(f"nvml.gpus.3.nvlink_ber.{field}", value)
        findings = run_check(CHECK, node, h200_profile())
        told = f"{field} = {value!r}: {findings['gpu3']}"
        assert findings.pop("gpu3").verdict is Verdict.UNKNOWN, told
        assert {finding.verdict for finding in findings.values()} == {Verdict.PASS}, told


@pytest.mark.parametrize("field", BER_FIELDS)
def test_one_value_that_the_driver_lacks_leaves_the_rest_to_judge(field: str) -> None:
    node = blackwell()
    node.set(f"nvml.gpus.3.nvlink_ber.{field}", {"error": "NOT_SUPPORTED"})
    run_check(CHECK, node, h200_profile())
    node.clock.now_s += 60
    assert run_check(CHECK, node, h200_profile())["gpu3"].verdict is Verdict.PASS


@pytest.mark.parametrize("refused", ["TIMEOUT", "GPU_IS_LOST", "UNKNOWN"])
@pytest.mark.parametrize("group", ["nvlink_errors", "nvlink_ber"])
def test_what_cannot_be_asked_is_left_to_no_other_check(group: str, refused: str) -> None:
    """Only Not Supported is the word of a platform; any other refusal is missing evidence in both checks."""
    node = h200_node()
    node.set("nvml.gpus.3.nvlink_errors", {"error": "NOT_SUPPORTED"})
    node.set("nvml.gpus.3.nvlink_ber", {"error": "NOT_SUPPORTED"})
    node.set(f"nvml.gpus.3.{group}", {"error": refused})
    for check_id in ("nvlink.errors", "nvlink.ber"):
        findings = run_check(load_all()[check_id], node, h200_profile())
        assert findings["gpu3"].verdict is Verdict.UNKNOWN, check_id
