"""`nodegate run` on this machine with a real vLLM on its CPU: no GPU, no simulation."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon_rig import NODEGATE, DaemonRig, wait_until
from launch_kit import alive, session

from agent.launch.launch_profile import MARKER
from agent.sources.processes import ProcessStat, marked
from agent.sources.shared_memory import SHM, mapped_by

REPOSITORY = Path(__file__).parents[2]
VENV = Path(os.environ.get("NODEGATE_ENGINE_VENV") or REPOSITORY / ".venv-engine")
NAME = "cpu"
#: vLLM starts in about a minute on two free cores; importing Python modules is nearly all of it.
START_PATIENCE_S = 400.0
CANARY = {"period_s": 3.0, "deadline_s": 5.0}
#: From the canary's verdict to the answer, and between two looks at it, on a busy machine.
SLACK_S = 2.0
#: A completion, whose first byte comes with its last token.
ANSWER_S = 180.0

ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
ARGS = ["--dtype", "bfloat16", "--max-model-len", "256", "--max-num-seqs", "4", "--enforce-eager"]


def make_model(folder: Path) -> Path:
    """The tiny model, made by vLLM's own Python."""
    script = REPOSITORY / "tests" / "engine" / "make_tiny_model.py"
    subprocess.run([str(VENV / "bin" / "python"), str(script), str(folder)], check=True, timeout=120)
    return folder


class VllmRig(DaemonRig):
    """The daemon and one vLLM."""

    def __init__(
        self, folder: Path, model: Path, *, args: Sequence[str] = (), env: Mapping[str, str] | None = None,
        checks: Mapping[str, Any] | None = None, **engine: Any,
    ) -> None:  # fmt: skip
        """A node without GPUs whose one engine serves `model`; more arguments, environment, engine keys."""
        nothing: dict[str, Any] = {
            "platform": "generic-8gpu",
            "node": "cpu-node",
            "driver_version": None,
            "gpus": {"count": 0},
            "nvlink": {"links_per_gpu": 0},
            "fabric": {"kind": "none"},
            "host": {"time_sync": False},  # a test machine may have no time service
        }
        super().__init__(folder, {NAME: []}, **nothing)
        self.profile["checks"] = dict(checks or {})
        self.profile["engines"][NAME] |= {
            "launch": {
                "command": [str(VENV / "bin" / "vllm"), "serve"],
                "model": str(model),
                "served_model_name": "tiny",
                "args": [*ARGS, "--load-format", "dummy", *args],
                "env": {**ENV, "VLLM_CACHE_ROOT": str(folder / "vllm-cache"), **(env or {})},
            },
            "start_deadline_s": START_PATIENCE_S,
            "canary": {**CANARY, "restart_after": 100},
            "backoff": {"first_s": 0.2, "jitter": 0.0, "crashes": 50},
            "warmup": {"requests": 2, "concurrent": 2, "max_tokens": 4},
            **engine,
        }
        self.write_profile()

    def words(self, *more: str) -> list[str]:
        """The command line of the daemon, on this machine."""
        folders = ["--state-dir", str(self.state_dir), "--run-dir", str(self.run_dir)]
        return [str(NODEGATE), "run", "--profile", str(self.profile_path), *folders, *more]

    def close(self) -> None:
        """End the daemon, and vLLM should the daemon have failed to."""
        pid = self.pid
        super().close()
        for stat in session(pid) if pid else []:
            os.kill(stat.pid, 9)

    @property
    def process_status(self) -> dict[str, Any]:
        """The engine's process as /status shows it."""
        return self.gate(NAME).get("process") or {}

    @property
    def pid(self) -> int | None:
        """The engine's first process."""
        return self.process_status.get("pid")

    def processes(self) -> dict[str, ProcessStat]:
        """The engine's living processes by what they are."""
        kinds = {"VLLM::EngineCor": "EngineCore", "VLLM::Worker": "Worker"}
        pid = self.pid
        assert pid is not None
        found = {}
        for stat in session(pid):
            kind = "API server" if stat.pid == pid else kinds.get(stat.comm, "resource_tracker")
            assert kind not in found, f"two processes look like {kind}: {found[kind]}, {stat}"
            found[kind] = stat
        return found

    def wait_code(self, code: int, patience_s: float) -> float:
        """Wait until /readyz answers this; the seconds that took."""
        began = time.monotonic()
        seen: list[int] = []
        while time.monotonic() - began < patience_s:
            seen.append(self.get("/readyz")[0])
            if seen[-1] == code:
                return time.monotonic() - began
            self._died()
            time.sleep(0.05)
        raise AssertionError(
            f"/readyz was never {code} in {patience_s} s, last {seen[-1:]}; {self.gate(NAME)}\n"
            f"{self.log()[-3000:]}"
        )

    def ask_engine(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        """One request to vLLM's own port."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.engine_ports[NAME], timeout=30 if body is None else ANSWER_S
        )
        try:
            if body is None:
                connection.request("GET", path)
            else:
                connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def marked(self) -> list[ProcessStat]:
        """Every living process that any launch of this rig's engine has left."""
        return [stat for stat in marked(f"{MARKER}={NAME}@") if not stat.dead]

    def nothing_left(self, old: Sequence[ProcessStat], shm: frozenset[str], patience_s: float = 60) -> float:
        """Wait until of one launch no process and no shared memory is left; the seconds that took."""
        began_s = time.monotonic()
        wait_until("the end of all", lambda: not [stat for stat in old if alive(stat.pid)], patience_s)
        wait_until("the end of its memory", lambda: not [n for n in shm if (SHM / n).exists()], patience_s)
        return time.monotonic() - began_s

    def port_is_free(self) -> bool:
        """Whether nothing listens at the engine's port."""
        return self.ask_or_fault("/health")[0] == 0

    def ask_or_fault(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        """As ask_engine; code 0 and the fault when there is no answer."""
        try:
            return self.ask_engine(path, body)
        except (OSError, http.client.HTTPException) as cause:
            return 0, str(cause)

    @contextmanager
    def in_flight(self, count: int, max_tokens: int = 200) -> Iterator[list[tuple[int, str]]]:
        """So many completions at the same time; their answers, complete when the block has ended."""
        answers: list[tuple[int, str]] = []
        body = {"model": "tiny", "max_tokens": max_tokens, "ignore_eos": True}

        def one(number: int) -> None:
            prompt = {"prompt": f"request {number}: count one two three"}
            answers.append(self.ask_or_fault("/v1/completions", body | prompt))

        threads: list[threading.Thread] = []

        def seen_running() -> bool:
            """Quick answers can all have come between two looks: then the same requests again."""
            if count and not any(thread.is_alive() for thread in threads):
                answers.clear()
                threads[:] = [threading.Thread(target=one, args=(number,)) for number in range(count)]
                for thread in threads:
                    thread.start()
            return self.running() >= min(count, 2)

        try:
            wait_until("requests that run", seen_running, 30)
            yield answers
        finally:
            for thread in threads:
                thread.join(ANSWER_S + 20)

    def running(self) -> float:
        """Requests that the engine is working on, as it says itself."""
        page = self.ask_or_fault("/metrics")[1]
        lines = [line for line in page.splitlines() if line.startswith("vllm:num_requests_running")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def shm(self) -> frozenset[str]:
        """The shared memory files of the engine's processes."""
        return mapped_by(stat.pid for stat in self.marked())
