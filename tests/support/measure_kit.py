"""Measured tests on the fake H200 node: a workload that plays lines, a second of the clock each turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode

from agent.checklist.measure import MeasureContext, MeasureOutcome, measures
from agent.errors import SourceUnavailable
from agent.measure import all_reduce, all_reduce_nodes, attend, free_gpus, gpu_load, run_worker
from agent.measure.place import NoPlace, Place
from agent.node_profile import NodeProfile
from agent.profile_loader import LoadedProfile
from agent.sources.workload import NoWorkloads, ReplayWorkloads, WorkloadEnd

PLACE = Place("glm", ("python", "worker"), {}, None)


@dataclass
class PlayedWorkload:
    """Says the next lines at each turn; then it has ended, or goes on in silence."""

    script: list[list[str]]
    end: WorkloadEnd | None = None
    turns: int = 0
    stopped: int = 0
    survivors: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        self.turns += 1
        return self.script.pop(0) if self.script else []

    def note(self) -> None:
        """Nothing of it maps anything."""

    def ended(self) -> WorkloadEnd | None:
        return None if self.script else self.end

    def stop(self, deadline_s: float) -> tuple[str, ...]:
        self.stopped += 1
        return self.survivors


@dataclass
class PlayedWorkloads(NoWorkloads):
    """Starts one played workload after another."""

    workloads: list[PlayedWorkload]
    started: list[Sequence[str]] = field(default_factory=list)

    def start(self, argv: Sequence[str], env: Mapping[str, str], working_dir: str | None) -> PlayedWorkload:
        self.started.append(argv)
        if len(self.started) > len(self.workloads):
            raise SourceUnavailable(f"{argv[0]} cannot be started: No such file or directory")
        return self.workloads[len(self.started) - 1]


@dataclass
class Bench:
    """One run of a measured test; `each` is called at every turn with its number."""

    node: FakeNode = field(default_factory=h200_node)
    profile: NodeProfile = field(default_factory=lambda: h200_profile({"nccl": {"min_bus_gb_s": 260}}))
    workloads: list[PlayedWorkload] = field(default_factory=list)
    each: Callable[[int], None] = lambda turn: None
    cancel_at: int | None = None
    until_s: float = 100_000.0
    simulated: bool = False
    recorded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    curves: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    turns: int = 0

    def __post_init__(self) -> None:
        for gpu in range(8):
            self.node.set(f"nvml.gpus.{gpu}.processes.pids", [])

    def run(self, name: str, **params: Any) -> MeasureOutcome:
        """Run it to its end."""
        self.played = PlayedWorkloads(self.workloads)
        workloads = ReplayWorkloads(self.recorded) if self.simulated else self.played
        sources = replace(self.node.sources, workloads=workloads, simulated=self.simulated)
        loaded = LoadedProfile(self.profile, "hash", (), ())
        until_s = self.node.clock.now_s + self.until_s
        context = MeasureContext(sources, loaded, until_s, self.said.append, self._keep, self._cancelled)
        test = measures()[name]
        return test.run(context, test.params.model_validate(params))

    def _keep(self, quantity: str, subject: str, unit: str, value: float) -> None:
        self.curves.setdefault((quantity, subject, unit), []).append(value)

    def _cancelled(self) -> bool:
        """Asked once a turn."""
        self.node.clock.now_s += 1
        self.turns += 1
        self.each(self.turns)
        return self.cancel_at is not None and self.turns >= self.cancel_at


async def _at_once(function: Callable[[], Any], deadline_s: float) -> Any:
    return function()


def without_threads(monkeypatch: pytest.MonkeyPatch, *, place: bool = True) -> None:
    """Looks are taken at once, turns take no real time, and (with `place`) workers have a place."""
    monkeypatch.setattr(attend, "TURN_S", 0.0)
    monkeypatch.setattr(free_gpus, "POLL_S", 0.0)
    for module in (attend, run_worker):
        monkeypatch.setattr(module, "in_spare_thread", _at_once)
    for module in (all_reduce, all_reduce_nodes, gpu_load):
        monkeypatch.setattr(module, "find_place", _place if place else _no_place)


def _place(*given: Any) -> Place:
    return replace(PLACE, argv=(*PLACE.argv, json.dumps(given[4])))


def _no_place(*given: Any) -> Place:
    raise NoPlace("glm: no program vllm in the PATH")


def reduced(**changes: Any) -> str:
    """The line of an all-reduce that went well."""
    good = {
        "test": "all_reduce", "done": True, "backend": "nccl", "nccl": "2.28.9", "world": 8, "right": True,
        "bus_gb_s": 328.0,
    }  # fmt: skip
    return json.dumps({**good, **changes})


def loaded_lines(seconds: int, gpus: int = 8, **changes: Callable[[int, int], Any]) -> list[list[str]]:
    """A report a second and GPU; `changes` give other values by GPU and second."""
    return [
        [
            json.dumps({
                "gpu": gpu, "at_s": float(at), "tflops": 700.0, "wrong": 0,
                **{key: value(gpu, at) for key, value in changes.items()},
            })
            for gpu in range(gpus)
        ]
        for at in range(1, seconds + 1)
    ]  # fmt: skip
