"""Failures that others met with their monitors: each public report, and the tests that fail if it comes here.

The table (support/field_table.py) names tests all over this tree and is proven to name ones that exist. Those
that need a whole node with its gate are here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from field_table import TABLE
from incident_drill import Drill, virtual_teller

from agent.checks.registry import load_all
from agent.one_shot import run_pass

TESTS = Path(__file__).parents[1]


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize(("reports", "symptom", "tests"), TABLE, ids=lambda value: str(value)[:40])
def test_the_table_names_tests_that_exist(
    reports: tuple[str, ...], symptom: str, tests: tuple[str, ...]
) -> None:
    assert reports and symptom and tests
    missing = [test for test in tests if test.partition("::")[2] not in names_in(test.partition("::")[0])]
    assert missing == []


def test_the_table_is_whole() -> None:
    reports = [report for row in TABLE for report in row[0]]
    assert len(TABLE) == 23 and len(set(reports)) == len(reports) == 29


def test_a_case_stands_for_the_report() -> None:
    """NVIDIA/DCGM#242: a slowdown of next to nothing is not worth a word."""
    case = yaml.safe_load((TESTS / "cases/gpu.power_dips/pass/next-to-nothing.yaml").read_text())
    assert "NVIDIA/DCGM#242" in case["why"]


class Scene:
    """The demo node serving, and what a test does to it."""

    def __init__(self, folder: Path, steps: list[dict[str, Any]], *only: str) -> None:
        scenario = folder / "scenario.yaml"
        scenario.write_text(yaml.safe_dump({"name": "field", "steps": steps}))
        self.drill = Drill("h200-roce", scenario=scenario, only=only)

    def __enter__(self) -> Drill:
        self.drill.run(12)
        assert self.drill.state("main") == "serving"
        self.drill.begin()
        return self.drill

    def __exit__(self, *_: object) -> None:
        self.drill.close()


@pytest.fixture(autouse=True)
def _virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    """The teller goes by the clock of the newest drill."""
    made = Drill.__init__

    def init(self: Drill, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        virtual_teller(monkeypatch, self.clock)

    monkeypatch.setattr(Drill, "__init__", init)


GROUPS = ("thermal", "power", "memory", "ecc", "nvlink", "fabric", "pcie", "processes")
HANG = {f"nvml.gpus.1.{group}": {"error": "TIMEOUT"} for group in GROUPS}
ONLY = ("gpu.*", "nvlink.links", "nvlink.fabric")


def test_a_hang_on_one_gpu_hides_no_fault_of_another(tmp_path: Path) -> None:
    """NVIDIA/NVSentinel#1748."""
    fault = {"nvml.gpus.5.memory.ecc_uncorrected_volatile": 2, "nvml.gpus.5.ecc.dram_uncorrected_volatile": 2}
    with Scene(tmp_path, [{"at_s": 2, "set": HANG}, {"at_s": 20, "set": fault}], *ONLY) as drill:
        drill.run(50)
        assert drill.result("gpu.ecc", "gpu5").verdict.value == "FAIL"
        assert drill.result("gpu.ecc", "gpu1").raw_verdict.value == "UNKNOWN"
        assert drill.state("main") == "failed"
        assert drill.records["main"].blockers[0].subject == "gpu5"


def test_timeouts_are_explained_and_drain_nobody(tmp_path: Path) -> None:
    """mej/nhc#95, #161."""
    with Scene(tmp_path, [{"at_s": 2, "set": HANG}, {"at_s": 120, "reset": ["nvml.gpus.1"]}], *ONLY) as drill:
        drill.run(110)
        assert "TIMEOUT" in drill.result("gpu.throttle", "gpu1").finding.summary
        assert drill.seen["main"][-1] == "degraded"  # told, and not drained
        drill.run(60)
        assert drill.seen["main"][-2:] == ["degraded", "serving"]
        assert not {"failed", "draining", "quarantined"} & set(drill.seen["main"])


def test_a_node_that_is_well_again_serves_again(tmp_path: Path) -> None:
    """NVIDIA/NVSentinel#458: nobody needs to clear what has passed."""
    broken = {"nvml.gpus.5.nvlink.states.7": False}
    steps = [{"at_s": 2, "set": broken}, {"at_s": 30, "reset": ["nvml.gpus.5.nvlink.states.7"]}]
    with Scene(tmp_path, steps, *ONLY) as drill:
        drill.run(28)
        assert drill.state("main") == "failed"
        drill.run(60)
        assert drill.state("main") == "serving"
        assert drill.engines["main"].asked == []  # the engine was left running


def test_one_bad_reading_of_anything_closes_nothing(tmp_path: Path) -> None:
    """patroni/patroni#1859: 503 while fine."""
    glitch = {
        "nvml.gpus.3.power.event_reasons": 0x40,
        "nvml.gpus.4.nvlink.states.2": False,
        "nvml.gpus.5.fabric.state": 2,
    }
    steps = [{"at_s": 5.0, "set": glitch}, {"at_s": 6.0, "reset": list(glitch)}]
    with Scene(tmp_path, steps, *ONLY) as drill:
        drill.run(40)
        assert drill.seen["main"] == ["booting", "preflight", "serving"]


def test_a_single_pass_ends_although_the_driver_hangs(tmp_path: Path) -> None:
    """scitix/sichek#67; the deadlines of a driver that really hangs are in tests/nvml."""
    steps = [{"at_s": 0, "set": {"nvml.system": {"error": "TIMEOUT"}}}]
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(yaml.safe_dump({"name": "field", "steps": steps}))
    drill = Drill("h200-roce", scenario=scenario)
    drill.begin()
    checks = {id_: check for id_, check in load_all().items() if id_.startswith("gpu.")}
    report = run_pass(
        drill.replay.sources, drill.profile, checks, phase=None, only=None, node="test", sample_s=0.0
    )
    drill.close()
    assert report.exit_code() == 2  # unknown
    assert report.duration_ms < 60_000
