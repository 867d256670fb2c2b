"""What status shows of warm-up and soak, as JSON and for people."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from agent.commands.status import show_status
from agent.engine_evidence import SoakPeaks, SoakResult, WarmupCurve, WarmupStep

CURVE = WarmupCurve((WarmupStep("short", 111.25), WarmupStep("long", 41.0004, 131056, 41.0004)))
PEAKS = (SoakPeaks("gpu0", 61, 20, 700.0, 1980), SoakPeaks("gpu1", 66, 15), SoakPeaks("gpu2"))


def soaked(*faults: str) -> SoakResult:
    return SoakResult(not faults, 180.0, 512, 32768, 190.4, 181.6, faults, PEAKS, ("gpu.throttle",))


def test_words() -> None:
    assert CURVE.words() == "short 111.25 s; prefill of 131056 tokens 41.00 s"
    assert WarmupCurve().words() == "no request"
    seen = (
        "180 s, 512 completions, 190 tokens/s at first, 182 at the end, hottest GPU 66 C, least margin 15 C"
    )
    assert soaked().words() == f"soak passed: {seen}"
    assert soaked("gpu.throttle gpu0: slow", "x").words() == (
        f"soak failed: gpu.throttle gpu0: slow and 1 more ({seen})"
    )


def test_json() -> None:
    found = json.loads(
        json.dumps({"warmup": CURVE.to_dict(), "soak": soaked("hot").to_dict()}, allow_nan=False)
    )
    assert found["warmup"]["steps"][1]["latency_s"] == 41.0
    assert found["soak"]["faults"] == ["hot"] and found["soak"]["passed"] is False
    assert found["soak"]["peaks"][2] == {
        "subject": "gpu2", "max_temperature_c": None, "min_margin_c": None, "max_draw_w": None,
        "min_sm_clock_mhz": None,
    }  # fmt: skip


def test_status_shows_both_on_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    process = {"phase": "up", "warmup": CURVE.to_dict(), "soak": soaked("hot").to_dict()}
    gate: dict[str, Any] = {
        "engine": "glm", "state": "warming", "ready": False, "forced": False, "since_s": 5, "reason": "why",
        "force_open": None, "blocking": [], "process": process,
    }  # fmt: skip
    others = [
        {**gate, "engine": "a", "process": None},
        {**gate, "engine": "b", "process": {"phase": "absent"}},
    ]
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    show_status(
        {"live": True, "profile_hash": "0" * 64, "gates": [gate, *others], "results": [], "holds": None}
    )
    lines = stream.getvalue().splitlines()
    assert "glm warm-up: short 111.25 s; prefill of 131056 tokens 41.00 s" in lines
    assert len([line for line in lines if line.startswith("glm soak failed: hot")]) == 1
    assert not [line for line in lines if line.startswith(("a warm-up", "b warm-up"))]
