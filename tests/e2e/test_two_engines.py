"""Two engines on one SIMULATED node: a fault closes the gates of those whom it concerns, and no other."""

from __future__ import annotations

from pathlib import Path

from daemon_rig import wait_until
from stage import Stage

ENGINES = {"left": [0, 1, 2, 3], "right": [4, 5, 6, 7]}
LINK_DOWN = {"nvml.gpus.6.nvlink.states.3": False, "nvml.gpus.6.nvlink.speeds_mb_s.3": 0}
QUICK = {"period_s": 0.5, "fail_for_s": 1.0, "clear_for_s": 0.5}


def test_a_fault_of_one_gpu_closes_only_its_owner(tmp_path: Path) -> None:
    steps = [
        {"at_s": 0.5, "set": LINK_DOWN},
        {"at_s": 20.0, "reset": ["nvml.gpus.6.nvlink"]},
    ]
    with Stage(tmp_path, ENGINES, {"steps": steps}, **{"nvlink.links": QUICK}) as stage:
        stage.wait_ready("left")
        stage.wait_ready("right")
        stage.begin()
        wait_until("a closed gate of right", lambda: not stage.ready("right"))
        assert stage.ready("left")
        assert not stage.ready()  # without a name: every engine
        code, body, _ = stage.get("/readyz/right")
        assert code == 503
        assert b"nvlink.links" in body
        assert b"gpu6" in body
        assert stage.agent_line("right").startswith("down #nvlink.links")
        assert stage.agent_line("left").startswith("up ready 100%")
        stage.wait_ready("right")
        assert stage.ready("left")
        assert stage.ready()
        states = [entry for entry in stage.admin.get("/history")["entries"] if entry["kind"] == "gate"]
        closed = [entry["engine"] for entry in states if entry["before"] == "serving"]
        assert closed == ["right"]


def test_a_fault_of_the_node_closes_both(tmp_path: Path) -> None:
    steps = [{"at_s": 0.5, "set": {"net.eth4.link.operstate": "down", "net.eth4.link.carrier": False}}]
    given = Stage(tmp_path, ENGINES, {"steps": steps}, **{"nic.port": QUICK})
    for name in ENGINES:
        given.profile["engines"][name]["launch"]["rdma"] = True
    given.write_profile()
    with given as stage:
        stage.wait_ready("left")
        stage.wait_ready("right")
        stage.begin()
        wait_until("both gates closed", lambda: not stage.ready("left") and not stage.ready("right"))
        for name in ENGINES:
            assert b"nic.port" in stage.get(f"/readyz/{name}")[1]


def test_a_lost_gpu_quarantines_only_its_owner(tmp_path: Path) -> None:
    xid = "3;NVRM: Xid (PCI:0000:d1:00): 79, pid='<unknown>', GPU has fallen off the bus."
    steps = [{"at_s": 0.5, "kmsg": [xid], "set": {"nvml.gpus.6": {"error": "GPU_IS_LOST"}}}]
    with Stage(tmp_path, ENGINES, {"steps": steps}) as stage:
        stage.wait_ready("left")
        stage.wait_ready("right")
        stage.begin()
        stage.wait_state("right", "quarantined")
        assert stage.ready("left")
        wait_until("an engine that is stopped", lambda: len(stage.engine_pids()) == 1)
        assert stage.gate("left")["state"] in ("serving", "degraded")
