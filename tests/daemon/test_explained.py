"""A finding is explained wherever it is shown, its part has a history, and a restart forgets neither."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_rig import DaemonRig
from inner_daemon import Inner, run_inner

from agent.checks import registry
from agent.journal import Journal
from agent.model import Finding

LOST = {
    "name": "gpu3-lost",
    "description": "GPU 3 is lost",
    "steps": [{"at_s": 0.1, "set": {"nvml.gpus.3": {"error": "GPU_IS_LOST"}}}],
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[DaemonRig]:
    made = DaemonRig(tmp_path, {"glm": [0, 1, 2, 3], "kimi": [4, 5, 6, 7]}, mode="observe")
    made.profile["checks"]["gpu.model"] = {"shadow": True}
    made.profile["gpus"]["model"] = "another"
    made.write_profile()
    yield made
    made.close()


def _broken(*_: object) -> list[Finding]:
    raise ZeroDivisionError("a defect of the check")


def test_a_lost_gpu_is_explained_everywhere_and_known_by_its_part(
    rig: DaemonRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.load_all()
    monkeypatch.setitem(
        registry.REGISTRY, "host.driver", replace(registry.REGISTRY["host.driver"], run=_broken)
    )
    seen: dict[str, Any] = {}

    def ask() -> None:
        seen["status"] = rig.json("/status")
        seen["page"] = rig.get("/")[1].decode()
        seen["metrics"] = rig.get("/metrics")[1].decode()
        seen["ready"] = rig.json("/readyz/glm")
        seen["other"] = rig.json("/readyz/kimi")

    async def act(inner: Inner) -> None:
        await inner.until_true(lambda: ("gpu.lost", "gpu3") in inner.daemon.parts.runner.snapshot.results)
        inner.opened.start()

        def lost() -> bool:
            shown = inner.daemon.parts.gates.shown
            found = shown.results.get(("gpu.lost", "gpu3")) if shown else None
            return found is not None and found.verdict == "FAIL"

        await inner.until_true(lost)
        await asyncio.to_thread(ask)

    run_inner(rig, act, LOST)
    results = {(r["check"], r["subject"]): r for r in seen["status"]["results"]}
    found = results["gpu.lost", "gpu3"]
    assert found["part"].startswith("GPU-")
    assert (found["times"], found["engines"]) == (
        1,
        [{"engine": "glm", "effect": "closes", "blocks_admission": True}],
    )
    assert found["action"]["hint"]
    (blocking,) = [b for b in seen["ready"]["blocking"] if (b["check"], b["subject"]) == ("gpu.lost", "gpu3")]
    assert (blocking["part"], blocking["engines"]) == (found["part"], found["engines"])
    assert not [b for b in seen["other"]["blocking"] if b["check"] == "gpu.lost"]
    shadow = results["gpu.model", "gpu0"]
    assert (shadow["verdict"], shadow["shadow"], seen["status"]["shadow"]) == ("FAIL", True, ["gpu.model"])
    assert "site.yaml:" in shadow["expected_from"]
    assert not [b for b in seen["other"]["blocking"] if b["check"] == "gpu.model"]
    assert "closes glm" in seen["page"]
    assert "SHADOW gpu.model" in seen["page"]
    assert 'nodegate_check_shadow{check="gpu.model",subject="gpu0"} 1.0' in seen["metrics"]
    _journal_knows(rig, found["part"])
    monkeypatch.undo()
    _restarts(rig, found["part"])


def _journal_knows(rig: DaemonRig, part: str) -> None:
    """The fault is in the part's history once; the defect of the check with its traceback once."""
    journal = Journal.open(rig.state_dir / "journal.db")
    try:
        faults = [fault for fault in journal.faults(0.0) if fault.check == "gpu.lost"]
        assert [(fault.part, fault.place, fault.hardware) for fault in faults] == [(part, "gpu3", True)]
        entries = journal.history(0.0, part=part)
        (fail,) = [e for e in entries if e["check"] == "gpu.lost" and e["verdict"] == "FAIL"]
        assert fail["evidence"]["explained"]["engines"][0]["engine"] == "glm"
        traces = [entry for entry in journal.history(0.0) if entry["kind"] == "trace"]
        assert [(t["check"], t["summary"]) for t in traces] == [
            ("host.driver", "ZeroDivisionError: a defect of the check")
        ]
        assert "_broken" in traces[0]["trace"]
    finally:
        journal.close()


def _restarts(rig: DaemonRig, part: str) -> None:
    """A restarted agent goes on from its counters, and takes a carried failure for no new one."""

    async def act(inner: Inner) -> None:
        parts = inner.daemon.parts
        assert parts.given.sources.counters.export()
        carried = parts.runner.snapshot.results["gpu.lost", "gpu3"]
        assert (carried.carried, carried.times, carried.part) == (True, 1, part)
        inner.opened.start()
        await inner.until_true(lambda: not parts.runner.snapshot.results["gpu.lost", "gpu3"].carried)

    run_inner(rig, act, LOST)
    journal = Journal.open(rig.state_dir / "journal.db")
    try:
        assert len([fault for fault in journal.faults(0.0) if fault.check == "gpu.lost"]) == 1
    finally:
        journal.close()
