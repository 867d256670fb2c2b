"""What a real vLLM does when it is started or stopped badly, and where its gate then stands.

The rows of a crash or a hang while it serves are in test_real_vllm.py, beside the daemon that they share.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_rig import wait_until
from vllm_rig import CANARY, NAME, SLACK_S, START_PATIENCE_S, VENV, VllmRig, make_model

from agent.sources.shared_memory import SHM

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

#: The engine's own drain, and how long a step of its worker may take before it gives itself up.
DRAIN_S, STEP_S = 90, 15
#: A start that hangs is given up after this time; before the longer one is over, its core must be there,
#: which takes 20 s on free processors.
SHORT_START_S, LONGER_START_S = 90.0, 240.0
#: SIGTERM to a starting vLLM is not waited for long: it neither exits nor serves.
STOP_WHILE_STARTING_S = 10.0

MakeRig = Callable[..., VllmRig]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model."""
    assert (VENV / "bin" / "vllm").exists(), f"no vLLM in {VENV}: run `make test-engine`"
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def make_rig(tmp_path: Path, model: Path) -> Iterator[MakeRig]:
    """Daemons that are started at once and ended after the test, with all that is left of their engines."""
    made: list[VllmRig] = []

    def make(**options: Any) -> VllmRig:
        rig = VllmRig(tmp_path, model, **options)
        made.append(rig)
        rig.start()
        return rig

    yield make
    for rig in made:
        rig.close()


def ended(rig: VllmRig, shm: frozenset[str] = frozenset()) -> None:
    """No process, port or shared memory of any launch is left."""
    wait_until("the end of all", lambda: not rig.marked(), 60)
    assert rig.port_is_free()
    assert not [name for name in shm if (SHM / name).exists()]


def test_a_stop_lets_answers_end_and_a_dead_step_ends_the_engine(make_rig: MakeRig) -> None:
    rig = make_rig(
        args=["--shutdown-timeout", str(DRAIN_S)],
        env={"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(STEP_S)},
        stop_deadline_s=DRAIN_S + 20,
        gate={"drain_grace_s": 1.0},
    )
    rig.wait_code(200, START_PATIENCE_S)
    old, shm = list(rig.processes().values()), rig.shm()

    # A stop with requests in flight: closed first, then every request is answered whole, then all is gone.
    with rig.in_flight(16, max_tokens=100) as answers:
        rig.admin.post("/engine/stop", {"engine": NAME, "reason": "row of the matrix"})
        assert rig.wait_code(503, 10) < 5
    kinds = [json.loads(text)["choices"][0]["finish_reason"] for status, text in answers if status == 200]
    assert kinds == ["length"] * 16, answers
    print(f"drained: nothing left {rig.nothing_left(old, shm):.1f} s after the last answer")
    rig.wait_state(NAME, "stopped")
    assert rig.port_is_free()

    # A worker that hangs past vLLM's own limit: it ends itself with exit code 0, which is a crash.
    rig.admin.post("/engine/start", {"engine": NAME, "reason": "row of the matrix"})
    rig.wait_code(200, START_PATIENCE_S)
    worker, shm = rig.processes()["Worker"], rig.shm()
    old = list(rig.processes().values())
    os.kill(worker.pid, signal.SIGSTOP)
    assert rig.wait_code(503, 60) <= CANARY["period_s"] + CANARY["deadline_s"] + SLACK_S
    with rig.in_flight(0):
        rig.nothing_left(old, shm, patience_s=STEP_S + 45)
    assert rig.gate(NAME)["state"] in ("failed", "launching")

    # Stopped in the middle of the start that follows: at once, not after the deadline of a full stop.
    wait_until("another start", lambda: rig.process_status.get("phase") == "starting")
    wait_until("its processes", lambda: len(rig.marked()) >= 2, START_PATIENCE_S)
    began_s = time.monotonic()
    rig.admin.post("/engine/stop", {"engine": NAME, "reason": "row of the matrix"})
    rig.wait_state(NAME, "stopped")
    took_s = time.monotonic() - began_s
    ended(rig)
    print(f"stopped while starting: {took_s:.1f} s")
    assert took_s < STOP_WHILE_STARTING_S


def test_a_start_that_somebody_else_terminates_is_given_up(make_rig: MakeRig) -> None:
    rig = make_rig(start_deadline_s=LONGER_START_S, backoff={"first_s": 300, "jitter": 0.0})
    wait_until("its core", lambda: len(rig.marked()) >= 3, LONGER_START_S)
    pid = rig.pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    gate = rig.wait_state(NAME, "failed", LONGER_START_S + 60)
    assert "ended" in gate["reason"] or "not healthy" in gate["reason"], gate["reason"]
    ended(rig)


def test_a_rank_whose_peer_never_comes_is_given_up(make_rig: MakeRig) -> None:
    """It waits in silence, and does not heed SIGTERM."""
    more = "--tensor-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1"
    rig = make_rig(args=more.split(), start_deadline_s=SHORT_START_S, backoff={"first_s": 300, "jitter": 0.0})
    gate = rig.wait_state(NAME, "failed", SHORT_START_S + 120)
    assert "not healthy" in gate["reason"], gate["reason"]
    assert rig.get("/readyz")[0] == 503
    ended(rig)


def test_a_flag_that_this_vllm_does_not_have_is_refused_before_anything_is_started(make_rig: MakeRig) -> None:
    rig = make_rig(args=["--swap-space", "8"])
    gate = rig.wait_state(NAME, "failed", 180)
    assert "--swap-space" in json.dumps(gate), gate
    assert "engine.flags" in json.dumps(rig.json("/readyz"))
    assert not rig.marked()


def test_without_the_lint_the_engine_says_it_itself(make_rig: MakeRig) -> None:
    """vLLM's exit code 2 and its words reach the person who looks at the gate."""
    unchecked = {"engine.flags": {"enabled": False}}
    rig = make_rig(args=["--swap-space", "8"], backoff={"first_s": 300, "jitter": 0.0}, checks=unchecked)
    gate = rig.wait_state(NAME, "failed", 300)
    assert "unrecognized arguments" in gate["reason"], gate["reason"]
    ended(rig)
