"""The daemon as a process on the benchmark's node: its answers, its start, its memory and its CPU time.

Answers are compared with an empty ASGI application in the same kind of server under the same client; rounds
alternate and the best of each counts, for the machines are noisy.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from bench_node import NODE
from bench_table import Figure, Ratio
from daemon_rig import EMBEDDED
from ports import free_ports

HERE = Path(__file__).parent
ROUNDS = 4
RATE_PER_S = 200
AT_RATE_S, AT_PEAK_S = 4.0, 2.0
#: After the start everything is noted for a restart once: that is over by then.
SETTLE_S, WATCH_S = 40.0, 40.0
START_DEADLINE_S = 60.0
MODEL = "sim"


@dataclass(frozen=True)
class Agent:
    """A running daemon."""

    process: psutil.Popen
    port: int

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def family(self) -> list[psutil.Process]:
        """The daemon and its children (NVML); the engines are not its own here."""
        return [psutil.Process(self.process.pid), *self.process.children(recursive=True)]


def measure(root: Path, folder: Path, env: dict[str, str]) -> tuple[list[Ratio], list[Figure]]:
    """Ratios of answers and of the start; figures of memory and CPU time."""
    with _running(root, folder, env) as agent, _empty_app() as empty_port:
        _wait_open(agent)
        ready, _ = agent.get("/readyz")
        ratios = _answers(agent.port, empty_port, ready)
        figures = _rest(agent)
    return [*ratios, *_starts(folder, env)], figures


def _profile(folder: Path) -> tuple[Path, list[int]]:
    """The node's profile on free ports, and the ports of its engines, run by somebody else (mode gate)."""
    profile: dict[str, Any] = yaml.safe_load((NODE / "profile.yaml").read_text())
    api, *ports = free_ports(1 + len(profile["engines"]))
    profile["api"] = {"host": "127.0.0.1", "port": api}
    profile["mode"] = "gate"
    for engine, port in zip(profile["engines"].values(), ports, strict=True):
        engine["port"] = port
        engine.pop("agent_check_port", None)
        engine["launch"] = {"model": MODEL}
    path = folder / "bench-profile.yaml"
    path.write_text(yaml.safe_dump(profile))
    return path, [api, *ports]


@contextmanager
def _running(root: Path, folder: Path, env: dict[str, str]) -> Iterator[Agent]:
    """The daemon and, beside it, the embedded engines that it gates; all stopped by their pids."""
    path, (api, *ports) = _profile(folder)
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    engines = [
        subprocess.Popen([*EMBEDDED, MODEL, "--port", str(port), "--startup-s", "0.1"], **quiet)
        for port in ports
    ]
    state, run = folder / "state", folder / "run"
    argv = [sys.executable, str(HERE / "bench_agent.py"), str(root), "run", "--profile", str(path)]
    argv += ["--state-dir", str(state), "--run-dir", str(run)]
    with (folder / "agent.log").open("w") as log:
        process = psutil.Popen(argv, env={**os.environ, **env}, stdout=log, stderr=log)
    try:
        yield Agent(process, api)
    finally:
        for each in (process, *engines):
            each.terminate()
        for each in (process, *engines):
            each.wait(timeout=60)
        shutil.rmtree(state, ignore_errors=True)


def _wait_open(agent: Agent) -> None:
    """Until the gates are open, or it is plain that they stay closed: then that is said in the table."""
    end_s = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < end_s:
        if agent.process.poll() is not None:
            raise SystemExit("the daemon of the benchmark ended: see its agent.log")
        try:
            if agent.get("/readyz")[0] == 200:
                return
        except OSError:
            pass  # not listening yet
        time.sleep(0.1)
    print(f"gates stay closed: {agent.get('/readyz')[1][:600]!r}", file=sys.stderr)


@contextmanager
def _empty_app() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "empty_app.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.communicate(timeout=20)


def _load(port: int, path: str, seconds: float, rate: float) -> dict[str, Any]:
    argv = [sys.executable, str(HERE / "http_load.py"), str(port), path, str(seconds), str(rate)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def _answers(port: int, empty_port: int, status: int) -> list[Ratio]:
    """p99 at a fixed rate, and the highest rate (as seconds an answer)."""
    p99: list[tuple[float, float]] = []
    peak: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        ours, base = (_load(p, "/readyz", AT_RATE_S, RATE_PER_S) for p in (port, empty_port))
        p99.append((ours["p99_s"], base["p99_s"]))
        ours, base = (_load(p, "/readyz", AT_PEAK_S, 0) for p in (port, empty_port))
        peak.append((1 / ours["per_s"], 1 / base["per_s"]))
    base_name = "empty ASGI app"
    return [
        Ratio(f"/readyz ({status}) p99 at {RATE_PER_S}/s, checks running", *_best(p99), base_name, 2.0),
        Ratio(f"/readyz ({status}) at peak rate, time an answer", *_best(peak), base_name, 1.67),
    ]


def _best(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    return min(ours for ours, _ in rounds), min(base for _, base in rounds)


def _rest(agent: Agent) -> list[Figure]:
    """Memory and CPU time of the daemon and its NVML process, at default periods, nobody asking."""
    time.sleep(SETTLE_S)
    before, began_s = _cpu_s(agent), time.monotonic()
    time.sleep(WATCH_S)
    cpu_s = (_cpu_s(agent) - before) / (time.monotonic() - began_s) * 60
    pss_mb = [process.memory_full_info().pss / 1e6 for process in agent.family()]
    parts = ", ".join(f"{mb:.0f}" for mb in pss_mb)
    return [
        Figure(f"PSS of all processes ({parts})", sum(pss_mb), "MB", 120),
        Figure("CPU time a minute at default periods (3 % of a core)", cpu_s, "s", 1.8),
    ]


def _cpu_s(agent: Agent) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in agent.family())


def _starts(folder: Path, env: dict[str, str]) -> list[Ratio]:
    """Start of the process to the first answer of /livez, against the import of what it serves with."""
    ours, base = [], []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import fastapi, uvicorn"], check=True)
        base.append(time.perf_counter() - began_s)
        ours.append(_start(folder, env))
    return [Ratio("start to first /livez", min(ours), min(base), "python -c 'import fastapi, uvicorn'", 2.0)]


def _start(folder: Path, env: dict[str, str]) -> float:
    """One start of `nodegate run` on this machine's own files with the library's GPUs."""
    path, (api, *_) = _profile(folder)
    argv = [str(Path(sys.executable).with_name("nodegate")), "run", "--profile", str(path)]
    argv += ["--state-dir", str(folder / "start"), "--run-dir", str(folder / "start-run")]
    began_s = time.perf_counter()
    process = psutil.Popen(
        argv, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while time.perf_counter() < began_s + START_DEADLINE_S and process.poll() is None:
            try:
                if Agent(process, api).get("/livez")[0] == 200:
                    return time.perf_counter() - began_s
            except OSError:
                time.sleep(0.002)
        raise SystemExit(f"nodegate run did not answer /livez (exit {process.poll()})")
    finally:
        process.terminate()
        process.wait(timeout=60)
