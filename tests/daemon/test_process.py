"""`nodegate run` as a process: from nothing to ready and back, orders of operators, ends of every kind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from daemon_rig import EMBEDDED, NODEGATE, DaemonRig, wait_until

ONE = {"glm": [0, 1, 2, 3]}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonRig]:
    """A daemon that serves, for tests that leave it serving."""
    rig = DaemonRig(tmp_path_factory.mktemp("node"), {"glm": [0, 1, 2, 3], "kimi": [4, 5, 6, 7]})
    rig.start()
    try:
        rig.wait_ready()
        yield rig
    finally:
        rig.close()


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


def test_every_interface_answers(running: DaemonRig) -> None:
    assert running.get("/livez")[0] == 200
    assert running.get("/readyz")[0] == 200
    assert running.get("/readyz/none")[0] == 404
    assert running.agent_line("glm") == running.agent_line("kimi") == "up ready 100%\n"
    status = running.json("/status")
    assert (status["simulated"], status["mode"], status["verdict"]) == (True, "manage", "PASS")
    assert b'nodegate_gate_ready{engine="kimi"} 1.0' in running.get("/metrics")[1]
    assert b"SIMULATED" in running.get("/")[1]


def test_the_operator_socket_is_for_its_group_alone(running: DaemonRig) -> None:
    assert (running.run_dir / "admin.sock").stat().st_mode & 0o777 == 0o660


def test_status_and_history_on_the_command_line(running: DaemonRig) -> None:
    shown = cli(running, "status")
    assert (shown.returncode, "SIMULATED" in shown.stdout, "serving" in shown.stdout) == (0, True, True)
    assert json.loads(cli(running, "status", "--json").stdout)["ready"] is True
    entries = json.loads(cli(running, "history", "--since", "1h", "--json").stdout)["entries"]
    states = [entry["state"] for entry in entries if entry["kind"] == "gate" and entry["engine"] == "glm"]
    assert states[:5] == ["preflight", "launching", "warming", "serving"][: len(states[:5])]
    assert "launching -> warming" in cli(running, "history").stdout


def test_drain_and_resume_from_the_command_line(running: DaemonRig) -> None:
    drained = cli(running, "gate", "drain", "glm", "--reason", "switch work")
    assert (drained.returncode, drained.stdout) == (
        0,
        f"glm: draining\nreopen with: nodegate gate resume glm --reason TEXT --run-dir {running.run_dir}\n",
    )
    running.wait_state("glm", "stopped")
    assert (running.ready("kimi"), running.ready()) == (True, False)
    assert cli(running, "status").returncode == 1
    again = cli(running, "gate", "drain", "glm", "--reason", "x")
    assert (again.returncode, again.stderr) == (3, "nodegate: cannot drain glm: its gate is stopped\n")
    assert cli(running, "gate", "resume", "glm", "--reason", "done").returncode == 0
    running.wait_ready()
    history = cli(running, "history").stdout
    assert "switch work" in history and f"uid {os.getuid()}" in history


def test_waive_and_force_open_from_the_command_line(running: DaemonRig) -> None:
    wrong = cli(running, "waive", "gpu.lost", "gpu3", "--for", "1h", "--reason", "x")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (3, 1)
    assert wrong.stderr.startswith("nodegate: gpu.lost cannot be waived: do what `nodegate status` says")
    waived = cli(running, "waive", "gpu.ecc", "gpu3", "--for", "1h", "--reason", "RMA")
    end = re.fullmatch(r"gpu\.ecc gpu3: waived until (\S+ \S+)\n", waived.stdout)
    assert end is not None, waived.stdout + waived.stderr
    left_s = datetime.fromisoformat(end[1]).timestamp() - time.time()
    assert 3600 - 120 < left_s <= 3600
    assert [w["subject"] for w in running.json("/status")["holds"]["waivers"]] == ["gpu3"]
    assert cli(running, "waive", "gpu.ecc", "gpu3", "--for", "0s", "--reason", "over").returncode == 0
    assert cli(running, "gate", "force-open", "glm", "--for", "1m", "--reason", "drill").returncode == 0
    assert running.gate("glm")["force_open"]["reason"] == "drill"
    assert re.search(r"FORCE-OPEN glm until .* by uid \d+: drill", cli(running, "status").stdout)
    assert b"FORCE-OPEN glm" in running.get("/")[1]
    cleared = cli(running, "gate", "clear", "glm", "--reason", "over")
    assert (cleared.returncode, "nothing to clear" in cleared.stdout) == (0, False)
    assert running.gate("glm")["force_open"] is None
    assert running.ready()


def test_a_clear_of_nothing_and_no_reason_are_told(running: DaemonRig) -> None:
    cleared = cli(running, "gate", "clear", "kimi", "--reason", "to be sure")
    assert cleared.returncode == 0
    assert "kimi: there was nothing to clear" in cleared.stdout and "glm" not in cleared.stdout
    empty = cli(running, "gate", "drain", "kimi", "--reason", " ")
    assert (empty.returncode, empty.stderr) == (
        3,
        'nodegate: --reason is empty; say why in one line: --reason "coolant loop"\n',
    )
    assert running.ready("kimi")


def test_no_history_is_told(running: DaemonRig) -> None:
    assert cli(running, "history", "--since", "1ms").stdout == "nothing has changed in the last 1ms\n"


def test_engine_logs_on_the_command_line(running: DaemonRig) -> None:
    assert cli(running, "engine", "logs", "glm", "--lines", "5").returncode == 0
    missing = cli(running, "engine", "logs", "none")
    assert missing.returncode == 3
    assert missing.stderr.count("\n") == 1


def test_a_second_daemon_is_refused_and_the_first_goes_on(running: DaemonRig) -> None:
    words = running.words()
    second = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert second.returncode == 3
    assert second.stderr.count("\n") == 1
    assert "another nodegate daemon (pid " in second.stderr
    elsewhere = running.folder / "elsewhere"
    words[words.index("--state-dir") + 1] = words[words.index("--run-dir") + 1] = str(elsewhere)
    third = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert third.returncode == 3
    assert "api.port: cannot listen at 127.0.0.1 port" in third.stderr
    assert third.stderr.count("\n") == 1
    assert not (elsewhere / "admin.sock").exists()
    assert running.ready()


def test_mode_observe_gates_nothing_and_opens_no_agent_check(tmp_path: Path) -> None:
    rig = DaemonRig(tmp_path, ONE, mode="observe")
    try:
        rig.start()
        wait_until("results", lambda: rig.json("/status").get("verdict") not in (None, "UNKNOWN"))
        status, body, _ = rig.get("/readyz/glm")
        answer = json.loads(body)
        assert (status, answer["state"], answer["blocking"][0]["check"]) == (503, "observe", "gate.mode")
        assert rig.agent_line("glm") == ""
        assert rig.engine_pids() == []
        refused = cli(rig, "gate", "drain", "--reason", "x")
        assert refused.returncode == 3
        assert "mode observe has no gate; set mode: gate or manage in the profile" in refused.stderr
        logs = cli(rig, "engine", "logs", "glm")
        assert (logs.returncode, logs.stdout) == (0, "")
        assert logs.stderr == "nodegate does not run glm in mode observe: read the log of what runs it\n"
        assert rig.stop() == 0
    finally:
        rig.close()


def test_a_node_without_engines_says_so(tmp_path: Path) -> None:
    rig = DaemonRig(tmp_path, {})
    try:
        rig.start()
        wait_until("an answer", lambda: rig.get("/readyz")[0] == 503)
        said = "no engines"
        wait_until(said, lambda: said in rig.json("/readyz")["blocking"][0]["summary"])
        assert rig.stop() == 0
    finally:
        rig.close()


def test_a_stop_during_the_start_is_an_orderly_one(rig: DaemonRig) -> None:
    """The API answers before the agent is built; the engine of the agent before must not be left behind."""
    rig.start()
    rig.wait_ready()
    assert rig.process is not None
    rig.process.kill()
    rig.process.wait(10)
    before = rig.engine_pids()
    rig.start()
    wait_until("the first answer", lambda: rig.get("/livez")[0] != 0)
    rig.process.send_signal(signal.SIGHUP)
    assert rig.stop() == 0
    assert before and rig.engine_pids() == []
    assert rig.log().count("asked to stop") == 1


def test_sighup_with_a_bad_profile_keeps_the_old_one(rig: DaemonRig) -> None:
    rig.start()
    wait_until("an answer", lambda: rig.get("/readyz")[0] != 0)
    old = wait_until("a profile", lambda: rig.json("/status").get("profile_hash"))
    rig.profile_path.write_text("gpus: [")
    assert rig.process is not None
    rig.process.send_signal(signal.SIGHUP)
    wait_until("the refusal", lambda: rig.json("/status").get("problems"))
    assert rig.json("/status")["profile_hash"] == old
    rig.write_profile()
    rig.process.send_signal(signal.SIGHUP)
    wait_until("the end of the refusal", lambda: rig.json("/status").get("problems") == [])
    assert rig.stop() == 0


def test_systemd_is_told(rig: DaemonRig, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        path = f"/tmp/nodegate-test-{os.getpid()}.sock"
        systemd.bind(path)
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        try:
            rig.start()
            assert systemd.recv(4096).startswith(b"READY=1")
            assert systemd.recv(4096) == b"WATCHDOG=1"
            assert rig.stop() == 0
            said = b""
            while not said.startswith(b"STOPPING=1\nEXTEND_TIMEOUT_USEC="):
                said = systemd.recv(4096)
        finally:
            Path(path).unlink()


def test_mode_gate_follows_an_engine_that_something_else_runs(tmp_path: Path) -> None:
    rig = DaemonRig(tmp_path, ONE, mode="gate")
    port = str(rig.engine_ports["glm"])
    words = [*EMBEDDED, "sim", "--port", port, "--startup-s", "0.1", "--token-s", "0.002"]
    engine: subprocess.Popen[bytes] | None = None
    try:
        rig.start()
        rig.wait_state("glm", "launching")
        engine = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rig.wait_ready()
        assert "does not run this engine" in cli(rig, "engine", "restart", "glm").stderr
        engine.terminate()
        engine.wait(60)
        wait_until("not ready", lambda: rig.get("/readyz")[0] == 503)
        engine = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rig.wait_ready()
        assert rig.stop() == 0
        assert engine.poll() is None, "the agent ends, the engine is not its own"
    finally:
        if engine is not None:
            engine.terminate()
            engine.wait(60)
        rig.close()
