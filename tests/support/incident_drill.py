"""A replayed node with its real runner, judgement and gates, on a clock that jumps: an hour takes a second.

Everything but three things is the daemon's own: checks run in this thread instead of threads of their own,
the event loop's time is a clock that jumps to the next timer, and the engines are obedient stand-ins.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nodes import node_dir, profile_path
from stage_time import START_MONO_S, JumpClock

from agent.check_threads import CheckThreads
from agent.checks.registry import Check, load_all
from agent.evaluate import judge
from agent.gate import new_gate, step
from agent.gate_record import Evaluated, GateConfig, GateRecord, StartEngine, StopEngine
from agent.model import EnginePhase, EngineStatus, Result, Snapshot
from agent.profile_loader import LoadedProfile, load_profile
from agent.publisher import answers_of
from agent.runner import Runner
from agent.sources import CanaryReport, CanaryVerdict, EngineObservation
from agent.sources.engine import EngineBoard
from agent.sources.node_folder import NodeFolder, load_node_folder
from agent.sources.replay import ReplaySources, Stage
from agent.sources.scenario import NO_SCENARIO, EngineStep, load_scenario

#: How long a stand-in takes from start to warm.
WARM_S = 3.0


@cache
def folder_of(node: str) -> NodeFolder:
    """A node's folder, read once: replays change nothing in it."""
    return load_node_folder(node_dir(node))


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: when nothing is ready, the clock jumps to the next timer."""

    def __init__(self, clock: JumpClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen again"
            self._clock.now_s += max(0.0, timeout)
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: JumpClock) -> None:
        super().__init__(_JumpingSelector(clock))
        self.time = clock.mono_s  # type: ignore[method-assign]


class _InlineThreads(CheckThreads):
    """Runs a check at once."""

    def run(self, job: Callable[[], None], name: str) -> threading.Thread:
        del name
        job()
        return threading.current_thread()


@dataclass
class StandIn:
    """An engine that does as it is told; a test changes what it shows of itself."""

    name: str
    clock: JumpClock
    phase: EnginePhase = EnginePhase.ABSENT
    since_s: float = 0.0
    hung: bool = False
    dead: bool = False
    #: Laid over every observation; a value may be a function of the seconds since the start of the drill.
    shows: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def status(self) -> EngineStatus:
        return EngineStatus(self.name, self.phase, self.since_s, pid=4242)

    def be(self, phase: EnginePhase) -> None:
        self.phase, self.since_s = phase, self.clock.now_s

    def start(self) -> None:
        self.asked.append("start")
        self.be(EnginePhase.STARTING)

    def stop(self) -> None:
        self.asked.append("stop")
        self.be(EnginePhase.ABSENT)

    def live(self) -> None:
        """What the passing of time does."""
        if self.dead and self.phase in (EnginePhase.UP, EnginePhase.WARM):
            self.be(EnginePhase.EXITED)
        if self.phase is EnginePhase.STARTING and self.clock.now_s - self.since_s >= WARM_S:
            self.be(EnginePhase.WARM)

    def observation(self, elapsed_s: float) -> EngineObservation:
        now_s = self.clock.now_s
        verdict = CanaryVerdict.DEAD if self.hung else CanaryVerdict.OK
        seen = EngineObservation(
            self.status(),
            health_ok=self.phase is EnginePhase.WARM,
            health_mono_s=now_s,
            canary=CanaryReport(verdict, now_s, 0.2),
            pids=(4242,),
        )
        shown = {key: value(elapsed_s) if callable(value) else value for key, value in self.shows.items()}
        return replace(seen, **shown)


class Drill:
    """One node. `run` lets virtual time pass; then verdicts, gates and answers can be asked for."""

    def __init__(
        self,
        node: str,
        *,
        scenario: Path | None = None,
        overlays: tuple[Path, ...] = (),
        only: tuple[str, ...] = ("*",),
        warm: bool = True,
    ) -> None:
        """Load the node; `only` are the checks (globs) to run beside engine.health."""
        self.clock = JumpClock()
        self.beat_s = 0.5
        self.profile: LoadedProfile = load_profile(profile_path(node), overlays=overlays)
        self.checks: Mapping[str, Check] = {
            id_: check
            for id_, check in load_all().items()
            if id_ == "engine.health" or any(fnmatchcase(id_, glob) for glob in only)
        }
        steps = NO_SCENARIO if scenario is None else load_scenario(scenario)
        self.replay = ReplaySources(Stage(folder_of(node), steps, self.clock), self._ring)
        self.replay.on_engine = self._engine_step
        self.engines = {name: StandIn(name, self.clock) for name in self.profile.profile.engines}
        if warm:
            for engine in self.engines.values():
                engine.be(EnginePhase.WARM)
        self.runner: Runner | None = None
        self.records: dict[str, GateRecord] = {
            name: new_gate(self._config(name), self.clock.now_s) for name in self.engines
        }
        #: Every state that a gate has been in, in order.
        self.seen: dict[str, list[str]] = {name: ["booting"] for name in self.engines}
        self.worst: dict[tuple[str, str], str] = {}
        self._snapshot: Snapshot | None = None
        self._loop = _JumpingLoop(self.clock)
        self._task: asyncio.Task[None] | None = None

    def _config(self, name: str) -> GateConfig:
        profile = self.profile.profile
        unwaivable = frozenset(check.id for check in self.checks.values() if not check.waivable)
        return GateConfig(name, profile.mode, profile.engines[name].gate.drain_grace_s, unwaivable, "b-1")

    def _ring(self, kind: str) -> None:
        if self.runner is not None:
            self.runner.trigger(kind)

    def _engine_step(self, step_: EngineStep) -> None:
        engine = self.engines[step_.engine]
        engine.hung = step_.action == "hang"
        engine.dead = step_.action == "kill" or engine.dead

    def begin(self) -> None:
        """Start the scenario's time."""
        self.replay._stage.started_mono_s = self.clock.now_s

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._loop.run_until_complete(self._live(seconds))

    async def _live(self, seconds: float) -> None:
        if self._task is None:
            self.runner = Runner(
                self.replay.sources,
                self.profile,
                self.checks,
                on_results=self._note,
                node=self.profile.profile.node,
            )
            self.runner._threads = _InlineThreads()
            self._publish_engines()
            self._task = asyncio.create_task(self.runner.run())
        end_s = self.clock.now_s + seconds
        while self.clock.now_s < end_s - 1e-6:
            await asyncio.sleep(min(self.beat_s, end_s - self.clock.now_s))
            self._beat()

    def _beat(self) -> None:
        assert self.runner is not None and self._task is not None
        if self._task.done():
            self._task.result()
        self.replay.tick()
        for engine in self.engines.values():
            engine.live()
        self._publish_engines()
        self.runner.flush()
        self._note(self.runner.snapshot, ())

    def _publish_engines(self) -> None:
        board = self.replay.sources.engines
        assert isinstance(board, EngineBoard)
        for name, engine in self.engines.items():
            board.publish(name, engine.observation(self.clock.now_s - START_MONO_S))

    def _note(self, snapshot: Snapshot, _changes: object) -> None:
        """New results: judge them for every gate."""
        self._snapshot = snapshot
        for name in self.engines:
            self._settle(name, snapshot)
        assert self.runner is not None
        self.runner.set_serving(any(record.ready for record in self.records.values()))

    def _settle(self, name: str, snapshot: Snapshot) -> None:
        engine = self.engines[name]
        for _ in range(8):
            before = self.records[name]
            now_s = self.clock.now_s
            evidence = judge(snapshot, self.profile.profile, name, self.checks, now_s)
            record, actions = step(before, Evaluated(evidence, engine.status(), self.clock.wall_s()), now_s)
            self.records[name] = record
            for action in actions:
                if isinstance(action, StartEngine):
                    engine.start()
                elif isinstance(action, StopEngine):
                    engine.stop()
            if record.state is before.state:
                return
            self.seen[name].append(record.state.value)
        raise AssertionError(f"the gate of {name} does not come to rest: {self.seen[name]}")

    def close(self) -> None:
        """End the runner."""
        if self._task is not None:
            self._task.cancel()
            self._loop.run_until_complete(asyncio.gather(self._task, return_exceptions=True))
        self._loop.close()
        self.replay.close()

    def result(self, check: str, subject: str) -> Result:
        """The current result. Fails the test when there is none."""
        assert self._snapshot is not None
        found = self._snapshot.results.get((check, subject))
        known = sorted(s for c, s in self._snapshot.results if c == check)
        assert found is not None, f"{check} says nothing of {subject}, only of {known}"
        return found

    def results(self) -> Mapping[tuple[str, str], Result]:
        """All current results."""
        assert self._snapshot is not None
        return self._snapshot.results

    def state(self, engine: str) -> str:
        """State of a gate."""
        return self.records[engine].state.value

    def agent_check(self, engine: str) -> str:
        """What HAProxy is told."""
        return answers_of(self.records, self.profile.profile)[engine].agent_line


def virtual_teller(monkeypatch: pytest.MonkeyPatch, clock: JumpClock) -> None:
    """Results are told by the clock that jumps, too."""
    monkeypatch.setattr("agent.teller.time", SimpleNamespace(monotonic=clock.mono_s))
