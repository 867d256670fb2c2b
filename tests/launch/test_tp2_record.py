"""The record of a real vLLM over two H200s keeps to the rules of now, and its capture still replays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent.checks.registry import load_all
from agent.commands import open_sources, resolve_profile
from agent.gate import TRANSITIONS
from agent.model import GateState, Verdict
from agent.one_shot import run_pass

RECORD = Path(__file__).parents[1] / "engine" / "h200-x2-tp2"


def read(name: str) -> Any:
    return json.loads((RECORD / name).read_text())


def test_every_step_ended_within_its_bound() -> None:
    told = read("rehearsal.json")
    assert [step["closed_after_s"] <= told["bound_s"] for step in told["hang"]] == [True, True]
    assert all(step["engine_health_code_meanwhile"] == 200 for step in told["hang"])
    assert [step["closed_after_s"] < 1 for step in told["kill"]] == [True, True]
    assert [step["gpu_processes_then"] for step in told["kill"]] == [[], []]
    assert told["adopted"]["same_processes"] and told["adopted"]["open_after_that_s"] <= 2.0
    assert (told["exit_code"], told["processes_left"]) == (0, [])


def test_the_gate_went_only_where_it_may() -> None:
    moves = [entry for entry in read("history.json") if entry["kind"] == "gate"]
    assert len(moves) >= 15
    for move in moves:
        assert GateState(move["state"]) in TRANSITIONS[GateState(move["before"])], move
    serving = [move for move in moves if move["state"] == "serving"]
    assert len(serving) == 6, "the first, after two hangs, after the adoption, after two kills"


def test_each_crash_left_its_last_words() -> None:
    crashes = [entry for entry in read("history.json") if entry["kind"] == "trace"]
    assert len(crashes) == 2
    assert all(entry["trace"].strip() and "ended" in entry["summary"] for entry in crashes)


def test_the_serving_node_replays_and_fits_its_topology_file() -> None:
    loaded = resolve_profile(None, None, RECORD / "capture")
    with open_sources(loaded.profile, node=RECORD / "capture") as opened:
        report = run_pass(opened.sources, loaded, load_all(), phase=None, only="[gnt][pvo][ulp]*", node="tp2")
    verdicts = {(r.check, r.subject): r.verdict for r in report.results}
    assert verdicts["topology.file", "node"] is Verdict.PASS
    for check in ("gpu.thermal_margin", "nvlink.links", "nvlink.fabric", "gpu.power_limit", "gpu.ecc"):
        assert [verdicts[check, f"gpu{slot}"] for slot in (0, 1)] == [Verdict.PASS] * 2, check
    # Its GPUs are in use and no daemon says by whom: that is never a PASS.
    assert [verdicts["gpu.foreign", f"gpu{slot}"] for slot in (0, 1)] == [Verdict.UNKNOWN] * 2
