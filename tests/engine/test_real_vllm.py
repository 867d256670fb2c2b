"""`nodegate run` with a real vLLM on the CPU. One daemon serves all tests, which run in this order."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from daemon_rig import wait_until
from launch_kit import session
from vllm_rig import CANARY, NAME, SLACK_S, START_PATIENCE_S, VENV, VllmRig, make_model

from agent.sources.processes import ProcessStat
from agent.sources.shared_memory import SHM

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmRig]:
    """The daemon, started; not ready yet."""
    assert (VENV / "bin" / "vllm").exists(), f"no vLLM in {VENV}: run `make test-engine`"
    folder = tmp_path_factory.mktemp("vllm")
    found = VllmRig(folder, make_model(folder / "tiny"))
    found.start()
    try:
        yield found
    finally:
        found.close()


def test_ready_only_after_the_warm_up(rig: VllmRig) -> None:
    phases: list[str] = []
    codes: list[int] = []

    def look() -> bool:
        phase = rig.process_status.get("phase")
        code = rig.get("/readyz")[0]
        if phase and phase not in phases:
            phases.append(phase)
        if code and code not in codes:
            codes.append(code)
        return code == 200

    wait_until("ready", look, START_PATIENCE_S)
    assert codes == [503, 200]
    assert "starting" in phases
    warm = rig.log().index("engine cpu: warm: warm-up passed")
    assert warm < rig.log().index("-> serving")
    _, page = rig.ask_engine("/metrics")
    finished = [
        float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith("vllm:request_success_total")
    ]
    assert sum(finished) >= 5  # two one after another, two at once, the first canary


def test_its_processes_are_the_ones_that_vllm_has(rig: VllmRig) -> None:
    assert set(rig.processes()) == {"API server", "EngineCore", "Worker", "resource_tracker"}


def test_a_completion_through_the_engines_port(rig: VllmRig) -> None:
    status, text = rig.ask_engine(
        "/v1/completions", {"model": "tiny", "prompt": "count one two", "max_tokens": 5}
    )
    answer = json.loads(text)
    assert status == 200
    assert answer["usage"]["completion_tokens"] >= 1
    assert answer["choices"][0]["finish_reason"] in ("length", "stop")


@pytest.mark.parametrize("kind", ["EngineCore", "Worker"])
def test_a_hang_closes_the_gate_and_its_end_opens_it_again(rig: VllmRig, kind: str) -> None:
    rig.wait_code(200, START_PATIENCE_S)
    pid, victim = rig.pid, rig.processes()[kind]
    os.kill(victim.pid, signal.SIGSTOP)
    try:
        took_s = rig.wait_code(503, 60)
        assert took_s <= CANARY["period_s"] + CANARY["deadline_s"] + SLACK_S
        assert rig.ask_engine("/health")[0] == 200  # what would have been believed without the canary
        blocking = rig.json("/readyz")["blocking"]
        assert [blocker["check"] for blocker in blocking] == ["engine.health"]
    finally:
        os.kill(victim.pid, signal.SIGCONT)
    rig.wait_code(200, 60)
    assert rig.pid == pid


def test_a_hang_in_the_middle_of_answers_closes_the_gate(rig: VllmRig) -> None:
    rig.wait_code(200, START_PATIENCE_S)
    pid, victim = rig.pid, rig.processes()["EngineCore"]
    with rig.in_flight(6, max_tokens=240) as answers:
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            assert rig.wait_code(503, 60) <= CANARY["period_s"] + CANARY["deadline_s"] + SLACK_S
            assert rig.ask_engine("/health")[0] == 200
        finally:
            os.kill(victim.pid, signal.SIGCONT)
    assert [status for status, _ in answers] == [200] * 6, "what waited was answered in the end"
    rig.wait_code(200, 60)
    assert rig.pid == pid


def send(rig: VllmRig, kind: str, number: signal.Signals) -> tuple[list[ProcessStat], frozenset[str]]:
    """Signal one process of the engine; all its processes and shared memory as they were before."""
    old, shm = rig.processes(), rig.shm()
    os.kill(old[kind].pid, number)
    return list(old.values()), shm


@pytest.mark.parametrize("kind", ["resource_tracker", "EngineCore", "Worker", "API server"])
def test_the_death_of_any_process_ends_all_and_is_followed_by_a_relaunch(rig: VllmRig, kind: str) -> None:
    rig.wait_code(200, START_PATIENCE_S)
    pid, names = rig.pid, set(rig.processes())
    loaded = 2 if kind == "EngineCore" else 0
    with rig.in_flight(loaded):
        old, shm = send(rig, kind, signal.SIGKILL)
        assert rig.wait_code(503, 30) <= SLACK_S
        rig.nothing_left(old, shm)
    rig.wait_code(200, START_PATIENCE_S)
    assert rig.pid != pid
    assert set(rig.processes()) == names


@pytest.mark.parametrize("row", ["idle", "40 in flight", "with a stopped EngineCore"])
def test_an_engine_that_somebody_else_terminates_is_a_fault_and_comes_back(rig: VllmRig, row: str) -> None:
    """vLLM exits with code 0, or hangs for good: neither may look like an orderly end."""
    rig.wait_code(200, START_PATIENCE_S)
    pid = rig.pid
    with rig.in_flight(40 if row == "40 in flight" else 0, max_tokens=240):
        if row == "with a stopped EngineCore":
            os.kill(rig.processes()["EngineCore"].pid, signal.SIGSTOP)
        old, shm = send(rig, "API server", signal.SIGTERM)
        closed_s = rig.wait_code(503, 60)
        left_s = rig.nothing_left(old, shm)
    print(f"{row}: closed after {closed_s:.1f} s, nothing left {left_s:.1f} s later")
    assert closed_s <= CANARY["period_s"] + CANARY["deadline_s"] + SLACK_S
    rig.wait_code(200, START_PATIENCE_S)
    assert rig.pid != pid


def test_a_killed_daemon_finds_its_engine_again(rig: VllmRig) -> None:
    rig.wait_code(200, START_PATIENCE_S)
    pid = rig.pid
    rig.stop(signal.SIGKILL)
    rig.start()
    wait_until("an answer", lambda: rig.get("/readyz")[0])
    rig.wait_code(200, 60)
    assert rig.pid == pid


def test_sigterm_leaves_nothing_behind(rig: VllmRig) -> None:
    pid, shm = rig.pid, rig.shm()
    assert pid is not None and session(pid)
    assert rig.stop() == 0
    assert not session(pid) and not rig.marked()
    assert rig.port_is_free()
    assert not [name for name in shm if (SHM / name).exists()]
    assert f"gate {NAME}:" in rig.log()
