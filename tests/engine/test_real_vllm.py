"""`nodegate run` with a real vLLM on the CPU. One daemon serves all tests, which run in this order."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from daemon_rig import wait_until
from launch_kit import alive, session
from vllm_rig import CANARY, NAME, START_PATIENCE_S, VENV, VllmRig, make_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

#: From the canary's verdict to the answer, and between two looks at it, on a busy machine.
SLACK_S = 2.0


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


@pytest.mark.parametrize("kind", ["resource_tracker", "EngineCore", "Worker", "API server"])
def test_the_death_of_any_process_ends_all_and_is_followed_by_a_relaunch(rig: VllmRig, kind: str) -> None:
    rig.wait_code(200, START_PATIENCE_S)
    pid, old = rig.pid, rig.processes()
    assert pid is not None
    os.kill(old[kind].pid, signal.SIGKILL)
    assert rig.wait_code(503, 30) <= SLACK_S
    wait_until("the end of all", lambda: not session(pid), 60)
    assert not [stat for stat in old.values() if alive(stat.pid)]
    rig.wait_code(200, START_PATIENCE_S)
    assert rig.pid != pid
    assert set(rig.processes()) == set(old)


def test_a_killed_daemon_finds_its_engine_again(rig: VllmRig) -> None:
    rig.wait_code(200, START_PATIENCE_S)
    pid = rig.pid
    rig.stop(signal.SIGKILL)
    rig.start()
    wait_until("an answer", lambda: rig.get("/readyz")[0])
    rig.wait_code(200, 60)
    assert rig.pid == pid


def test_sigterm_leaves_nothing_behind(rig: VllmRig) -> None:
    pid = rig.pid
    assert pid is not None and session(pid)
    assert rig.stop() == 0
    assert not session(pid)
    assert f"gate {NAME}:" in rig.log()
