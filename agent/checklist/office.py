"""The daemon's side of checklists: where it keeps them, what it tells of them, and its two orders.

A run that has passed ends maintenance and quarantine only after the daemon has read the record itself; one
that has failed leaves maintenance in force, with the failed step in its reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.checklist.hardware import parts_of
from agent.checklist.load import load_named, own_of
from agent.checklist.proof import Now, ProofRefused, prove
from agent.checklist.record import RunRecord
from agent.checklist.store import RecordError, RunStore
from agent.checklist.watch import ChecklistWatch
from agent.errors import ConfigError, SourceError
from agent.gatekeeper import Gatekeeper
from agent.holds import Hold
from agent.launch.preset import FOLDER as PRESETS
from agent.launch.soak_demand import SoakDemand
from agent.operator_desk import GateOrder, Given, MaintenanceOrder, OperatorDesk, OrderRefused
from agent.profile_loader import LAYER_FOLDER, LoadedProfile
from agent.sources import Sources

log = logging.getLogger("nodegate.checklist")


@dataclass(frozen=True)
class Replayed:
    """What a simulated daemon replays, so that a run can look at the same node at the same moment."""

    node: Path
    scenario: Path | None
    began_mono_s: Callable[[], float | None]


class ChecklistOffice:
    """Belongs to the main loop's thread; what is slow is done in others."""

    def __init__(
        self,
        state_dir: Path,
        sources: Sources,
        loaded: Callable[[], LoadedProfile],
        gates: Gatekeeper,
        desk: OperatorDesk,
        replayed: Replayed | None = None,
    ) -> None:
        """Make the folder of the records; without one no run can be kept, and nothing else suffers."""
        self._state_dir = state_dir
        self._sources = sources
        self._loaded = loaded
        self._gates = gates
        self._desk = desk
        self._replayed = replayed
        self.store = RunStore(state_dir)
        self.watch = ChecklistWatch(self.store)
        try:
            self.store.make()
        except RecordError as cause:
            log.warning("%s", cause)

    def whereabouts(self) -> dict[str, Any]:
        """What this daemon runs on, for a command that is to look at the same node by the same profile."""
        loaded, replayed = self._loaded(), self._replayed
        shipped = (LAYER_FOLDER, PRESETS)
        files = [str(file.resolve()) for file in loaded.files if file.parent not in shipped]
        replay = None
        if replayed is not None:
            replay = {
                "node": str(replayed.node.resolve()),
                "scenario": None if replayed.scenario is None else str(replayed.scenario.resolve()),
                "began_mono_s": replayed.began_mono_s(),
            }
        return {
            "state_dir": str(self._state_dir.resolve()),
            "files": files,
            "profile_hash": loaded.hash,
            "replay": replay,
        }

    async def passed(self, run_id: str, soak_s: float, who: str) -> list[str]:
        """End maintenance and quarantine on the proof of a run; the engines' next launches soak so long."""
        held = self._held()
        try:
            record = await asyncio.to_thread(self._prove, run_id, held)
            await asyncio.to_thread(self._ask_soak, soak_s)
        except (ProofRefused, SourceError) as cause:
            raise OrderRefused(str(cause)) from cause
        except OSError as cause:
            raise OrderRefused(f"the soak cannot be asked for: {cause.strerror or cause}", 507) from cause
        if self._held() != held:
            raise OrderRefused("maintenance or quarantine changed meanwhile; nothing was ended")
        given = Given(f"checklist {record.checklist} passed, run {run_id}, by {record.who}"[:500], who)
        said = []
        for name, gate in self._gates.records.items():
            if gate.holds.quarantine is not None:
                await self._desk.gate(GateOrder.CLEAR, name, given)
                said.append(f"{name}: quarantine ended by run {run_id}")
        if self._gates.maintenance is not None:
            await self._desk.maintenance(MaintenanceOrder.EXIT, given)
            said.append(f"maintenance: ended by run {run_id}")
        return said or ["neither maintenance nor quarantine was in force"]

    async def failed(self, run_id: str, step: str, why: str, who: str) -> list[str]:
        """Have maintenance hold, with the step that failed in its reason."""
        return await self._desk.hold_maintenance(f"run {run_id} failed at {step}: {why}", who)

    def refuse_to_open(self, *, behind_maintenance: bool) -> None:
        """Raise OrderRefused for what might start an engine beside a run that loads or stops the engines.

        What is only behind maintenance, as a drain that ends, starts nothing while that holds.
        """
        if behind_maintenance and self._gates.maintenance is not None:
            return
        try:
            told = self.store.progress() if self.store.is_running() else None
        except SourceError as cause:
            raise OrderRefused(f"a checklist is under way, and nothing is known of it: {cause}") from cause
        if told is not None and self._uses_the_node(told):
            at = f"run {told.get('run_id')}, step {told.get('step')}"
            raise OrderRefused(
                f"the checklist {told.get('name')} is under way ({at}), and an engine would run beside it;"
                " wait for its end, or end it with Ctrl-C where it runs"
            )

    def _uses_the_node(self, told: Mapping[str, Any]) -> bool:
        """Whether a run needs closed gates, and has not come to its own gate step."""
        if told.get("verdict") is not None:
            return False
        try:
            checklist = load_named(str(told.get("name")), own_of(self._loaded()))
        except ConfigError:  # of a file: what it does is not known
            return True
        names = [step.id for step in checklist.steps]
        if checklist.needs != "closed":
            return False
        return checklist.gate is None or told.get("step") in names[: checklist.gate]

    def _held(self) -> dict[str, Hold]:
        """What a proof would end."""
        gates = self._gates
        held = {} if gates.maintenance is None else {"maintenance": gates.maintenance}
        for name, gate in gates.records.items():
            if gate.holds.quarantine is not None:
                held[f"quarantine of {name}"] = gate.holds.quarantine
        return held

    def _prove(self, run_id: str, held: Mapping[str, Hold]) -> RunRecord:
        loaded, clock = self._loaded(), self._sources.clock
        parts = parts_of(self._sources, loaded.profile, serials=False)
        now = Now(loaded.hash, clock.boot_id(), parts, clock.wall_s(), self._sources.simulated, held)
        return prove(self.store, run_id, now, own_of(loaded))

    def _ask_soak(self, soak_s: float) -> None:
        """Raises OSError."""
        for name in self._gates.records:
            if soak_s > 0:
                SoakDemand.of(self._state_dir, name).ask(soak_s)
