"""Runs of checklists on replayed nodes with a clock that jumps, and the daemon's real desk behind them.

Real are: the checklists, the runner, the checks on the replayed node, the measured load (SIMULATED, as on any
replayed node), gates, holds and the proof that the daemon asks for. The engines are stand-ins that are warm.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from desk_kit import Hands, Notes
from incident_drill import _JumpingLoop, folder_of
from nodes import profile_path
from stage_time import JumpClock

from agent.checklist.begin import Facts, new_record
from agent.checklist.hardware import parts_of
from agent.checklist.load import load_named, with_settings
from agent.checklist.model import Checklist
from agent.checklist.office import ChecklistOffice
from agent.checklist.operator import Operator
from agent.checklist.record import RunRecord, StepRecord
from agent.checklist.run import Run
from agent.checklist.steps import Surroundings
from agent.checklist.store import RunStore
from agent.checks.registry import load_all
from agent.demo_node import NODE_DIR
from agent.engine_evidence import SoakResult
from agent.errors import DaemonError
from agent.gatekeeper import Gatekeeper, Ports
from agent.holds import HoldStore, as_json
from agent.launch.soak_demand import SoakDemand
from agent.model import EnginePhase, EngineStatus, Phase, Snapshot
from agent.one_shot import run_pass
from agent.operator_desk import Given, MaintenanceOrder, OperatorDesk, OrderRefused
from agent.profile_loader import LoadedProfile, load_profile
from agent.sources import Sources
from agent.sources.replay import ReplaySources, Stage
from agent.sources.scenario import NO_SCENARIO, load_scenario

CHECKS = load_all()
#: What the nodes that are replayed have measured: those of tests/nodes have no such file.
MEASURED = json.loads((NODE_DIR / "measured.json").read_text())


@cache
def _profile(path: Path) -> LoadedProfile:
    """A node's own profile, which no test changes."""
    return load_profile(path)


class Bench:
    """One node, its records and its daemon."""

    def __init__(
        self,
        folder: Path,
        node: str = "b300-roce",
        *,
        steps: list[dict[str, Any]] | None = None,
        overlay: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.clock = JumpClock()
        top = profile_path(node)
        below: tuple[Path, ...] = ()
        if overlay is not None:  # laid over the node's own profile
            top, below = folder / "overlay.yaml", (top,)
            top.write_text(yaml.safe_dump(dict(overlay)))
        self.loaded: LoadedProfile = load_profile(top, overlays=below) if below else _profile(top)
        scenario = NO_SCENARIO
        if steps is not None:
            path = folder / "scenario.yaml"
            path.write_text(yaml.safe_dump({"name": "test", "steps": steps}))
            scenario = load_scenario(path)
        self.replay = ReplaySources(
            Stage(replace(folder_of(node), measured=MEASURED), scenario, self.clock), None
        )
        self.store = RunStore(folder / "state")
        self.store.make()
        self.daemon = DeskDaemon(self)
        self.said: list[str] = []

    @property
    def sources(self) -> Sources:
        return self.replay.sources

    def begin_scenario(self) -> None:
        """The scenario's time begins now."""
        self.replay._stage.started_mono_s = self.clock.now_s

    def sleep(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def record(self, checklist: Checklist, **changes: Any) -> RunRecord:
        """A new record, kept."""
        parts = parts_of(self.sources, self.loaded.profile, serials=True)
        facts = Facts(
            node="n", simulated=True, profile_hash=self.loaded.hash, boot_id=self.clock.boot_id(),
            parts=parts, wall_s=self.clock.wall_s(), origin="shipped",
        )  # fmt: skip
        record = new_record(checklist, facts, who="anna", reason="test").model_copy(update=changes)
        self.store.begin(record.run_id)
        return record

    def given(
        self, checklist: Checklist, record: RunRecord, answers: Mapping[str, str], *, with_daemon: bool = True
    ) -> Surroundings:
        return Surroundings(
            checklist=checklist,
            record=record,
            loaded=self.loaded,
            sources=self.sources,
            checks=CHECKS,
            ask=Operator("anna", answers, wall_s=self.clock.wall_s),
            say=self.said.append,
            daemon=self.daemon if with_daemon else None,
            sleep=self.sleep,
        )

    def run(self, name: str, answers: Mapping[str, str] | None = None, **settings: float) -> RunRecord:
        """One run of a shipped checklist to its end."""
        lowered = {key.replace("__", ".").replace("_s_", "_s"): value for key, value in settings.items()}
        checklist, shortened = with_settings(load_named(name, None), lowered)
        record = self.record(load_named(name, None), shortened=shortened)
        return Run(self.given(checklist, record, answers or {}), self.store).go()

    def close(self) -> None:
        self.daemon.loop.close()
        self.replay.close()


class DeskDaemon:
    """The daemon's gates, holds and desk, asked without a socket; `soak` is what its engines' soaks show."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        state = bench.folder / "state"
        self.loop = asyncio.new_event_loop()
        self.notes = Notes()
        ports = Ports(
            journal=self.notes, forget=lambda *_: None, clear_log=lambda _: None, on_change=lambda: None,
            on_serving=lambda _: None,
        )  # fmt: skip
        self.hands = {name: Hands(name) for name in bench.loaded.profile.engines}
        self.gates = Gatekeeper(
            bench.loaded.profile, {}, bench.clock, HoldStore(state), ports, hands=self.hands
        )
        self.desk = OperatorDesk(self.gates, self.notes)
        self.office = ChecklistOffice(state, bench.sources, lambda: bench.loaded, self.gates, self.desk)
        self.soak: SoakResult | None = soak_result(())
        #: Seconds of soak that each engine was asked for.
        self.asked_soak_s: list[float] = []
        self.evaluate()

    def evaluate(self) -> None:
        clock = self._bench.clock
        # A gate's engine is up again as soon as it may be, and gone while it may not.
        for name, hands in self.hands.items():
            held = self.gates.maintenance is not None
            phase = EnginePhase.ABSENT if held else EnginePhase.WARM
            hands.status = EngineStatus(name, phase, 0.0, soak=None if held else self.soak)
        snapshot = Snapshot("n", "h", True, clock.boot_id(), clock.mono_s(), clock.wall_s(), {})
        self.gates.evaluate(snapshot)

    def enter_maintenance(self, reason: str = "coolant loop") -> None:
        self.order(self.desk.maintenance(MaintenanceOrder.ENTER, Given(reason, "anna")))
        for _ in range(3):
            self._bench.clock.now_s += 120
            self.evaluate()

    def order(self, coroutine: Any) -> list[str]:
        try:
            said: list[str] = self.loop.run_until_complete(coroutine)
        except OrderRefused as cause:
            raise DaemonError(str(cause)) from cause
        finally:
            self.evaluate()
        return said

    def states(self) -> list[str]:
        return [record.state.value for record in self.gates.records.values()]

    def status(self) -> dict[str, Any]:
        self.evaluate()
        soaks = {name: hands.status.soak for name, hands in self.hands.items()}
        return {
            "mode": self._bench.loaded.profile.mode.value,
            "holds": as_json(self.gates.holds),
            "gates": [
                {
                    "engine": name, "state": record.state.value, "reason": record.reason, "drain": None,
                    "process": {"soak": soak.to_dict() if (soak := soaks[name]) else None},
                }
                for name, record in self.gates.records.items()
            ],
            "results": self._results(),
        }  # fmt: skip

    def _results(self) -> list[dict[str, Any]]:
        """What the daemon has read just now of the BMC."""
        checks = {id_: check for id_, check in CHECKS.items() if id_.startswith("bmc.")}
        report = run_pass(
            self._bench.sources, self._bench.loaded, checks, phase=Phase.MAINTENANCE, only=None, node="n",
            sleep=self._bench.sleep,
        )  # fmt: skip
        return [{**report.entry(r), "age_s": 0.0, "carried": False, "raw_verdict": r.verdict.value,
                 "waived": False, "shadow": False} for r in report.results]  # fmt: skip

    def passed(self, run_id: str, soak_s: float) -> list[str]:
        said = self.order(self.office.passed(run_id, soak_s, "uid 0"))
        self.asked_soak_s = [SoakDemand.of(self._bench.store.state_dir, n).least_s() for n in self.hands]
        return said

    def failed(self, run_id: str, step: str, why: str) -> list[str]:
        return self.order(self.office.failed(run_id, step, why, "uid 0"))


def soak_result(faults: tuple[str, ...]) -> SoakResult:
    return SoakResult(
        passed=not faults, seconds=180.0, completions=100, tokens=6400, first_tokens_per_s=40.0,
        last_tokens_per_s=40.0, faults=faults, peaks=(), watched=("gpu.throttle",),
    )  # fmt: skip


def jump_measures(monkeypatch: pytest.MonkeyPatch, clock: JumpClock, look_s: float = 5.0) -> None:
    """Measured loads live on the clock that jumps, and look at the hardware more rarely."""

    def run(coroutine: Any) -> Any:
        loop = _JumpingLoop(clock)
        try:
            return loop.run_until_complete(coroutine)
        finally:
            loop.close()

    async def at_once(job: Callable[[], Any], _deadline_s: float) -> Any:
        return job()

    for module in ("gpu_load", "all_reduce", "engine_load", "all_reduce_nodes"):
        monkeypatch.setattr(f"agent.measure.{module}.asyncio", SimpleNamespace(run=run), raising=False)
    # A clock that jumps runs out for whoever waits for a thread, so whichever module starts one does without.
    for name, loaded in list(sys.modules.items()):
        if name.startswith("agent.") and hasattr(loaded, "in_spare_thread"):
            monkeypatch.setattr(loaded, "in_spare_thread", at_once)
    monkeypatch.setattr("agent.measure.attend.LOOK_S", look_s)
    monkeypatch.setattr("agent.measure.attend.TURN_S", look_s / 2)


def step_of(record: RunRecord, id_: str) -> StepRecord:
    return next(step for step in record.steps if step.id == id_)
