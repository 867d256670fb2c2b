"""What NVML through the killable child costs, against a bare loop of the same calls in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench_table import Ratio
from nvml_lib import COLD_LATENCIES_US, NvmlFile, build_library

from agent.checks.registry import load_all
from agent.commands import resolve_profile
from agent.one_shot import run_pass
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.nvml import NvmlProcess
from agent.sources.replay import replay_sources

GPUS = 8
PASSES = 20
#: Warm calls of a real H200 take tens of microseconds; in no time at all only the overhead is left.
CALLS_US = {"all calls take no time": 0, "each call takes 40 us": 40}
CALLS = [name for name in COLD_LATENCIES_US if name.startswith("nvmlDevice")]


def measure(node: Path) -> list[Ratio]:
    """One ratio for reading alone and one for a whole pass of checks, for each speed of the library."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="nodegate-bench-") as folder:
        library = build_library(Path(folder))
        for speed, call_us in CALLS_US.items():
            file = NvmlFile(Path(folder) / "nvml", gpus=GPUS, latencies_us=dict.fromkeys(CALLS, call_us))
            env = file.env(library)
            bare_s = _bare(env)
            nvml = NvmlProcess(env=env)
            try:
                ratios.append(
                    Ratio(f"NVML reads through the child, {speed}", _best(_reader(nvml)), bare_s, "bare loop")
                )
                ratios.append(
                    Ratio(
                        f"full pass of all checks, {speed}", _best(_checker(nvml, node)), bare_s, "bare loop"
                    )
                )
            finally:
                nvml.close()
    return ratios


def _bare(env: dict[str, str]) -> float:
    """The fastest pass of the bare loop."""
    command = [sys.executable, str(Path(__file__).with_name("bare_nvml.py")), str(PASSES)]
    answer = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, check=True, timeout=60
    )
    return min(json.loads(answer.stdout))


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest of some runs: on a shared machine the others measure the neighbours."""
    run()
    times_s = []
    for _ in range(PASSES):
        began_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - began_s)
    return min(times_s)


def _reader(nvml: NvmlProcess) -> Callable[[], object]:
    """Read what the bare loop reads."""
    uuids = [gpu.uuid for gpu in nvml.inventory() if gpu.uuid is not None]

    def read_all() -> None:
        nvml.fresh()  # a pass must not be answered with the one before
        for uuid in uuids:
            for group in NvmlGroup:
                nvml.read(uuid, group)

    return read_all


def _checker(nvml: NvmlProcess, node: Path) -> Callable[[], object]:
    """Run every check of admission; all but NVML is replayed. Its verdicts do not matter here."""
    loaded = resolve_profile(None, None, node)
    sources = replace(replay_sources(node, None).sources, nvml=nvml)
    checks = load_all()

    def run_all() -> None:
        nvml.fresh()
        run_pass(sources, loaded, checks, phase=None, only=None, node="bench", sample_s=0.0)

    return run_all
