"""The measured tests on real GPUs: loads, all-reduce, a load that is called off, one whose runner is killed.

Not a test that CI can run. It writes one JSON document of what was seen, with the readings behind each
verdict, from which tests/measure replays them:

    python tests/engine/measure_on_gpus.py --profile FILE --out FILE [--seconds 60]

The profile has no engines; this script adds one over all its GPUs whose environment is the Python that runs
it (it must have torch). It changes no setting of a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent.checklist.measure import MeasureContext, measures
from agent.commands import open_sources, resolve_profile
from agent.measure.attend import Attendant
from agent.measure.free_gpus import in_use
from agent.measure.place import WORKERS
from agent.sources import Nvml, Sources
from agent.sources.gpu_reading import GpuIdentity, GpuReading, NvmlGroup, NvmlRefusal, SystemReading
from agent.sources.workload_process import LiveWorkloads

ENGINE_PORT = 18100
KEPT = (NvmlGroup.THERMAL, NvmlGroup.POWER, NvmlGroup.SLOWDOWNS)
#: A GPU machine that is shared may forbid NVLink multicast; nothing here needs it.
PASSED = ("PYTHONPATH", "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")


class RecordingNvml:
    """Passes readings on, and keeps one of each group, GPU and second."""

    def __init__(self, inner: Nvml) -> None:
        self._inner = inner
        self.frames: list[dict[str, Any]] = []

    def system(self) -> SystemReading:
        return self._inner.system()

    def inventory(self) -> Sequence[GpuIdentity]:
        return self._inner.inventory()

    def expect(self, uuids: Sequence[str], group: NvmlGroup) -> None:
        self._inner.expect(uuids, group)

    def read(self, uuid: str, group: NvmlGroup) -> GpuReading:
        reading = self._inner.read(uuid, group)
        if group in KEPT:
            if not self.frames or reading.mono_s - self.frames[-1]["mono_s"] > 0.9:
                self.frames.append({"mono_s": round(reading.mono_s, 2), "gpus": {}})
            place = str([gpu.uuid for gpu in self._inner.inventory()].index(uuid))
            gpu = self.frames[-1]["gpus"].setdefault(place, {})
            gpu.setdefault(group.value, {name: _plain(value) for name, value in reading.values.items()})
        return reading


def _plain(value: Any) -> Any:
    return {"error": value.name} if isinstance(value, NvmlRefusal) else value


class Stage:
    """The machine, and what has been seen of it."""

    def __init__(self, sources: Sources, loaded: Any) -> None:
        self.sources, self.loaded = sources, loaded
        self.called_off_s: float | None = None
        self.reports: list[dict[str, Any]] = []

    def run(
        self, name: str, params: Mapping[str, Any], cancelled: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """One measured test with all that is kept of it."""
        recorder = RecordingNvml(self.sources.nvml)
        sources = replace(self.sources, nvml=recorder)
        curves: dict[str, list[float]] = {}
        said: list[str] = []
        self.reports, self.called_off_s = [], None
        began_s = time.monotonic()

        def off() -> bool:
            if cancelled() and self.called_off_s is None:
                self.called_off_s = time.monotonic()
            return self.called_off_s is not None

        def keep(quantity: str, subject: str, unit: str, value: float) -> None:
            curves.setdefault(f"{quantity} {subject} {unit}", []).append(value)

        until_s = sources.clock.mono_s() + 900
        context = MeasureContext(sources, self.loaded, until_s, said.append, keep, off)
        test = measures()[name]
        outcome = test.run(context, test.params.model_validate(params))
        ended_s = time.monotonic()
        off_s = self.called_off_s
        return {
            "test": name, "params": params, "verdict": outcome.verdict, "summary": outcome.summary,
            "hint": outcome.hint, "said": said, "took_s": round(ended_s - began_s, 2),
            "values": [value.model_dump(mode="json") for value in outcome.values],
            "findings": [finding.model_dump(mode="json") for finding in outcome.findings],
            "curves": {key: [round(value, 2) for value in points] for key, points in curves.items()},
            "reports": self.reports, "frames": recorder.frames, "in_use_after": self.in_use(),
            "returned_after_call_s": None if off_s is None else round(ended_s - off_s, 2),
        }  # fmt: skip

    def in_use(self) -> str:
        profile = self.loaded.profile
        return in_use(self.sources, profile, range(profile.gpus.count))


def keep_reports(stage: Stage) -> None:
    """Keep what workers report, as it is heard."""
    heard = Attendant._heard

    def also(self: Attendant, workload: Any, found: Any) -> bool:
        lines = workload.lines()
        stage.reports += [json.loads(line) for line in lines if line.startswith("{")]
        shown = type("Shown", (), {"lines": staticmethod(lambda: lines)})
        return heard(self, shown, found)  # type: ignore[arg-type]

    Attendant._heard = also  # type: ignore[method-assign]


def killed_runner(profile: Path, stage: Stage) -> dict[str, Any]:
    """SIGKILL for whoever measures: when is the GPU free again?"""
    child = subprocess.Popen([sys.executable, __file__, "--profile", str(profile), "--only-load", "600"])
    until_s = time.monotonic() + 120
    while not stage.in_use() and time.monotonic() < until_s:
        time.sleep(0.2)
    time.sleep(5)
    seen = stage.in_use()
    child.send_signal(signal.SIGKILL)
    child.wait()
    killed_s = time.monotonic()
    while stage.in_use() and time.monotonic() < killed_s + 30:
        time.sleep(0.02)
    free_s = round(time.monotonic() - killed_s, 2)
    return {"in_use_before": seen, "free_after_s": free_s, "in_use_after": stage.in_use()}


def refused(stage: Stage) -> Any:
    """A load beside somebody else's process."""
    hold = (
        "import sys, torch; x = torch.ones(1, device='cuda'); print(x.item(), flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdin is not None
    holder.stdout.readline()
    try:
        return stage.run("load.gpu", {"duration_s": 5})
    finally:
        holder.stdin.close()
        holder.wait()


def alone(profile: Any) -> Any:
    """The worker of the all-reduce by itself: even one GPU, without links, shows NCCL and right sums."""
    order = {
        "gpus": profile.gpus.count,
        "size_mib": 1024,
        "iterations": 20,
        "limit_s": 120,
        "rendezvous_s": 60,
    }
    argv = [sys.executable, "-B", "-u", str(WORKERS / "all_reduce.py"), json.dumps(order)]
    began_s = time.monotonic()
    workload = LiveWorkloads().start(argv, os.environ, None)
    while (end := workload.ended()) is None and time.monotonic() < began_s + 150:
        time.sleep(0.1)
    took_s = round(time.monotonic() - began_s, 2)
    lines, left = workload.lines(), workload.stop(10)
    return {"lines": lines, "errors": end.errors if end else "late", "took_s": took_s, "left": left}


def through_engine(stage: Stage) -> Any:
    """load.engine with the embedded engine, which is SIMULATED: the client and the watch are real."""
    words = [sys.executable, "-m", "agent.launch.embedded_engine", "--port", str(ENGINE_PORT)]
    engine = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        time.sleep(8)
        return stage.run("load.engine", {"duration_s": 10, "concurrent": 4})
    finally:
        engine.terminate()
        engine.wait(20)


def rehearse(stage: Stage, profile: Path, seconds: float, told: dict[str, Any]) -> None:
    """All of it; what is known when a step fails has been told."""
    told["all_reduce_worker"] = alone(stage.loaded.profile)
    told["runs"] = []
    told["runs"].append(stage.run("nccl.all_reduce", {}))
    told["runs"].append(stage.run("load.gpu", {"duration_s": seconds, "size": "small"}))
    told["runs"].append(stage.run("load.gpu", {"duration_s": seconds, "size": "full"}))
    told["called_off"] = stage.run("load.gpu", {"duration_s": 300}, lambda: len(stage.reports) > 5)
    told["refused"] = refused(stage)
    told["killed_runner"] = killed_runner(profile, stage)
    try:
        told["engine"] = through_engine(stage)
    except OSError as cause:
        told["engine"] = str(cause)


def with_engine(base: Path, folder: Path) -> Path:
    """The profile with an engine whose environment is this Python."""
    profile = yaml.safe_load(base.read_text())
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    profile["engines"] = {
        "main": {
            "gpus": list(range(profile["gpus"]["count"])),
            "port": ENGINE_PORT,
            "launch": {
                "command": [sys.executable, "-m", "vllm.entrypoints.openai.api_server"],
                "env": passed,
                "inherit_env": ["PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME"],
            },
        }
    }
    profile["driver_version"] = None
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(profile))
    return path


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only-load", type=float, help="only a load of so many seconds (to be killed)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        own = given.profile if given.only_load else with_engine(given.profile, Path(folder))
        loaded = resolve_profile(own)
        with open_sources(loaded.profile) as opened:
            stage = Stage(opened.sources, loaded)
            if given.only_load:
                stage.run("load.gpu", {"duration_s": given.only_load})
                return
            keep_reports(stage)
            system = opened.sources.nvml.system()
            told: dict[str, Any] = {"system": asdict(system), "threads": threading.active_count()}
            try:
                rehearse(stage, own, given.seconds, told)
            finally:
                given.out.write_text(json.dumps(told, default=str))


if __name__ == "__main__":
    main()
