"""How `nodegate run` ends and what the next one finds: signals, SIGKILL, garbled holds, no room."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_rig import NODEGATE, DaemonRig, wait_until

ONE = {"glm": [0, 1, 2, 3]}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[DaemonRig]:
    made = DaemonRig(tmp_path, ONE)
    yield made
    made.close()


def cli(rig: DaemonRig, *words: str) -> subprocess.CompletedProcess[str]:
    """One command against the daemon."""
    return subprocess.run(
        [str(NODEGATE), *words, "--run-dir", str(rig.run_dir)], capture_output=True, text=True, timeout=60
    )


def test_sigterm_drains_stops_and_leaves_nothing(rig: DaemonRig) -> None:
    rig.profile["engines"]["glm"]["gate"]["drain_grace_s"] = 2
    rig.write_profile()
    rig.start()
    rig.wait_ready()
    assert rig.engine_pids()
    assert rig.process is not None
    rig.process.send_signal(signal.SIGTERM)
    wait_until("drain", lambda: rig.agent_line("glm") == "drain\n")
    assert rig.get("/readyz")[0] == 503
    assert rig.engine_pids(), "the engine goes on while the load balancers look away"
    assert rig.process.wait(60) == 0
    assert rig.engine_pids() == []
    assert not (rig.run_dir / "admin.sock").exists()
    assert rig.get("/readyz")[0] == 0


def test_a_second_sigterm_cuts_the_grace_short(rig: DaemonRig) -> None:
    rig.profile["engines"]["glm"]["gate"]["drain_grace_s"] = 3000
    rig.write_profile()
    rig.start()
    rig.wait_ready()
    assert rig.process is not None
    rig.process.send_signal(signal.SIGINT)
    wait_until("drain", lambda: rig.agent_line("glm") == "drain\n")
    assert rig.stop() == 0
    assert rig.engine_pids() == []


def test_after_sigkill_the_engine_is_adopted_and_proven_again(rig: DaemonRig) -> None:
    rig.start()
    rig.wait_ready()
    pid = rig.gate("glm")["process"]["pid"]
    rig.stop(signal.SIGKILL)
    assert rig.get("/readyz")[0] == 0
    rig.start()
    seen: list[str] = []

    def watch() -> bool:
        status, body, _ = rig.get("/readyz/glm")
        if status == 503:
            seen.append(json.loads(body)["state"])
        return status == 200

    wait_until("ready again", watch)
    assert rig.gate("glm")["process"]["pid"] == pid
    states = [line for line in rig.log().splitlines() if line.startswith("INFO nodegate.gate: gate glm")]
    assert any("booting -> preflight" in line for line in states[4:]), "it began closed and proved everything"
    assert "serving" not in seen


def test_quarantine_and_maintenance_survive_sigkill(rig: DaemonRig) -> None:
    rig.profile["engines"]["glm"]["backoff"] = {"crashes": 1}
    rig.write_profile()
    rig.start()
    rig.wait_ready()
    os.kill(rig.gate("glm")["process"]["pid"], signal.SIGKILL)
    rig.wait_state("glm", "quarantined")
    wait_until("the hold on disk", lambda: held_on_disk(rig, "glm"))
    rig.stop(signal.SIGKILL)
    rig.start()
    gate = rig.wait_state("glm", "quarantined")
    assert gate["quarantine"]["who"] == "nodegate"
    assert cli(rig, "maintenance", "enter", "--reason", "new pump").returncode == 0
    rig.stop(signal.SIGKILL)
    rig.start()
    rig.wait_state("glm", "maintenance")
    assert rig.agent_line("glm") == "maint\n"
    assert cli(rig, "maintenance", "exit", "--reason", "done").returncode == 0
    rig.wait_state("glm", "quarantined")
    assert cli(rig, "gate", "clear", "--reason", "cause found").returncode == 0
    rig.wait_ready()


def held_on_disk(rig: DaemonRig, engine: str) -> bool:
    """Whether the quarantine of an engine is on the disk."""
    path = rig.state_dir / "holds.json"
    held = json.loads(path.read_text()) if path.exists() else {"engines": {}}
    return bool(held["engines"].get(engine, {}).get("quarantine"))


def test_kills_amid_orders_lose_no_hold(rig: DaemonRig) -> None:
    rig.profile["engines"]["glm"]["launch"]["args"][1] = "0.05"
    rig.write_profile()
    held = False
    for round_ in range(8):
        rig.start()
        moment_s = time.monotonic() + (0.1, 1.2)[round_ % 2] + 0.1 * round_
        ordered = False
        while time.monotonic() < moment_s:
            status, _, _ = rig.get("/readyz/glm")
            if status == 200:
                assert not held
                assert rig.gate("glm").get("process", {}).get("phase") in ("warm", None)
            elif status == 503 and not ordered and round_ % 2 == 1:
                # Killed in the midst of orders: what was answered must hold, what was not may.
                order = "exit" if held else "enter"
                ordered = cli(rig, "maintenance", order, "--reason", f"round {round_}").returncode == 0
                held = held != ordered
        rig.stop(signal.SIGKILL)
        if (rig.state_dir / "journal.db").exists():
            with sqlite3.connect(rig.state_dir / "journal.db") as journal:
                assert journal.execute("PRAGMA quick_check").fetchone() == ("ok",)
            journal.close()
        holds = rig.state_dir / "holds.json"
        on_disk = json.loads(holds.read_text())["maintenance"] if holds.exists() else None
        assert (on_disk is not None) == held
    rig.start()
    if not held:
        wait_until("an answer", lambda: rig.get("/readyz")[0] == 503 or rig.ready())
        wait_until("the socket", lambda: cli(rig, "maintenance", "enter", "--reason", "end").returncode == 0)
    rig.wait_state("glm", "maintenance")
    assert rig.stop() == 0
    assert rig.engine_pids() == []


def refused(rig: DaemonRig, *more: str) -> str:
    """The one line with which a daemon refuses to start."""
    answer = subprocess.run(rig.words(*more), capture_output=True, text=True, timeout=60)
    assert answer.returncode == 3, answer.stderr
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (rig.run_dir / "admin.sock").exists()
    return answer.stderr


def test_what_it_cannot_have_is_one_line(rig: DaemonRig) -> None:
    with socket.create_server(("127.0.0.1", rig.check_ports["glm"])):
        assert "engines.glm.agent_check_port: cannot listen" in refused(rig)
    file = rig.folder / "file"
    file.write_text("")
    assert "cannot be written" in refused(rig, "--log-dir", str(file))
    assert "name another with --log-dir" in refused(rig, "--log-dir", "/proc/nothing")
    assert f"{file}: should be keys with values" in refused(rig, "--scenario", str(file))
    rig.profile["engines"]["glm"]["gpus"] = [50]
    rig.write_profile()
    assert "GPU slot 50" in refused(rig)


def test_garbled_holds_are_maintenance(rig: DaemonRig) -> None:
    rig.state_dir.mkdir()
    (rig.state_dir / "holds.json").write_text('{"engines": {"glm": ')
    rig.start()
    rig.wait_state("glm", "maintenance")
    assert "cannot be read" in rig.json("/status")["holds"]["maintenance"]["reason"]
    assert cli(rig, "maintenance", "exit", "--reason", "looked at").returncode == 0
    rig.wait_ready()
    assert rig.stop() == 0
