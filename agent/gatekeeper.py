"""All gates of a node: feeds evidence and events to the pure gates, does what they ask, tells what changed.

Everything here belongs to the thread of the main loop. A change is published before anything slower happens
to it (journal and holds are written by threads of their own), so the time from a result to a closed gate is
the time of one judgement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from agent.blockers import blocker_to_dict
from agent.checks.registry import Check
from agent.evaluate import Blocker, Judgement, judge
from agent.fresh_start import without_carried
from agent.gate import new_gate, step
from agent.gate_record import (
    Evaluated,
    ForgetFaults,
    GateAction,
    GateConfig,
    GateEvent,
    GateRecord,
    HoldsLoaded,
    SaveHolds,
    Shutdown,
    StartEngine,
    StopEngine,
)
from agent.hold_keeper import HoldKeeper
from agent.holds import Hold, Holds, HoldStore, LogCleared, apply_waivers
from agent.log_events import Event, about
from agent.model import EnginePhase, EngineStatus, GateState, Snapshot
from agent.node_profile import Engine, NodeProfile
from agent.sources import Clock

log = logging.getLogger("nodegate.gate")
#: From boot to serving a gate passes through four states; a step more shows that it rests.
_MOST_STEPS = 8


class EngineHands(Protocol):
    """What a gate needs of an engine's controller."""

    @property
    def status(self) -> EngineStatus:
        """The engine now."""

    def start_engine(self) -> None:
        """Ask for a start."""

    def stop_engine(self, grace_s: float = 0) -> None:
        """Ask for a stop."""

    def reset_crashes(self) -> None:
        """Forget counted crashes."""

    def set_taking_traffic(self, taking: bool) -> None:
        """Say whether the gate is open."""


class GroupVoice(Protocol):
    """What a gate needs of its engine's group."""

    def take(self, judgement: Judgement, status: EngineStatus, gate: GateRecord) -> tuple[Judgement, bool]:
        """The judgement with the group's word in it, and whether the engine's rank is to end."""


class GateLog(Protocol):
    """The part of the journal that gates write to."""

    def record_gate(
        self, engine: str, old: str, new: str, reason: str, evidence: object = None, *, boot_id: str = ""
    ) -> None:
        """Record a change of state."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the gatekeeper acts on: the journal, the faults' memory, and whoever publishes."""

    journal: GateLog
    forget: Callable[[str, str], None]
    clear_log: Callable[[float], None]
    on_change: Callable[[], None]
    on_serving: Callable[[bool], None]
    explain: Callable[[Blocker], Mapping[str, object]] = blocker_to_dict


class Gatekeeper:
    """The gates of one node."""

    def __init__(
        self,
        profile: NodeProfile,
        checks: Mapping[str, Check],
        clock: Clock,
        store: HoldStore,
        ports: Ports,
        *,
        hands: Mapping[str, EngineHands] | None = None,
    ) -> None:
        """Make a closed gate for each engine, with the holds found on disk."""
        self.profile = profile
        self.checks = checks
        self.clock = clock
        self.boot_id = clock.boot_id()
        self.ports = ports
        self.unwaivable = frozenset(check.id for check in checks.values() if not check.waivable)
        self.hands: dict[str, EngineHands] = dict(hands or {})
        #: What the other members of an engine's group mean for its gate.
        self.groups: dict[str, GroupVoice] = {}
        self.snapshot: Snapshot | None = None
        #: The snapshot as it counts: with the waivers of now.
        self.shown: Snapshot | None = None
        self._holds = store.load(self.boot_id)
        self.keeper = HoldKeeper(store, lambda: self.holds, self._holds)
        self._serving: bool | None = None
        now_mono_s = clock.mono_s()
        self.records = {
            name: new_gate(self._config(name, engine), now_mono_s) for name, engine in profile.engines.items()
        }
        if self._holds.maintenance is not None:
            log.warning("maintenance holds: %s", self._holds.maintenance.reason)
        if self._holds.log_cleared is not None:
            ports.clear_log(self._holds.log_cleared.up_to_mono_s)

    @property
    def holds(self) -> Holds:
        """All holds as they count now."""
        ours = {name: record.holds for name, record in self.records.items()}
        return replace(self._holds, engines={**self._holds.engines, **ours})

    @property
    def maintenance(self) -> Hold | None:
        """The node's maintenance hold."""
        return self._holds.maintenance

    def add_engine(self, name: str, hands: EngineHands) -> None:
        """Give a gate its engine's controller."""
        self.hands[name] = hands

    def load_holds(self) -> None:
        """Let the gates take in the holds found on disk, before any evidence."""
        for name in self.records:
            self.apply(name, HoldsLoaded(self._holds.maintenance, self._holds.of_engine(name)))
        self.ports.on_change()

    def replace_profile(self, profile: NodeProfile) -> None:
        """Judge by another profile with the same engines from now on."""
        self.profile = profile
        for name, engine in profile.engines.items():
            # What the new profile asks for gates the next launch in full.
            record = replace(self.records[name], config=self._config(name, engine), relaunching=False)
            self.records[name] = record

    def evaluate(self, snapshot: Snapshot | None = None) -> None:
        """Judge the newest results (or those known) for every engine, and publish."""
        self.snapshot = snapshot or self.snapshot
        if self.snapshot is not None:
            waivers, wall_s = self._holds.waivers, self.clock.wall_s()
            self.shown = apply_waivers(self.snapshot, waivers, self.unwaivable, wall_s)
            for name in self.records:
                self.settle(name)
        self._tell_serving()
        self.ports.on_change()

    def engine_changed(self, name: str) -> None:
        """The controller has news of one engine."""
        self.settle(name)
        self._tell_serving()
        self.ports.on_change()

    def shut_down(self) -> None:
        """Close every gate for good."""
        for name in self.records:
            self.apply(name, Shutdown())
        self.evaluate()

    @property
    def all_stopped(self) -> bool:
        """Whether every gate has come to its end after `shut_down`."""
        return all(record.state is GateState.STOPPED for record in self.records.values())

    def settle(self, name: str) -> None:
        """Evaluate one gate until it rests; states on the way are recorded."""
        snapshot = self.shown
        if snapshot is None:
            return
        for _ in range(_MOST_STEPS):
            before = self.records[name].state
            self.apply(name, self._evidence(name, snapshot))
            if self.records[name].state is before:
                return
        # A gate that cannot rest is a defect; the next tick goes on from where it stands.
        log.error("gate of %s does not come to rest: %s", name, self.records[name].state)

    def apply(self, name: str, event: GateEvent) -> None:
        """One event for one gate. Raises IllegalTransition, and then nothing has changed."""
        before = self.records[name]
        after, actions = step(before, event, self.clock.mono_s())
        self.records[name] = after
        if after.state is not before.state:
            # Before anything slower: whoever asks from now on gets the new answer.
            self.ports.on_change()
            self._tell_change(before, after)
        for action in actions:
            self._act(name, action)

    def try_event(self, name: str, event: GateEvent) -> GateRecord:
        """What the gate would be after an event. Raises IllegalTransition. Changes nothing."""
        return step(self.records[name], event, self.clock.mono_s())[0]

    def hurry(self) -> None:
        """Cut the load balancers' grace short."""
        now_mono_s = self.clock.mono_s()
        for name, record in self.records.items():
            if record.stop_at_mono_s is not None:
                self.records[name] = replace(record, stop_at_mono_s=now_mono_s)
        self.evaluate()

    def restate_maintenance(self, hold: Hold) -> None:
        """Give the maintenance in force another reason."""
        self._holds = replace(self._holds, maintenance=hold)
        for name, record in self.records.items():
            self.apply(name, HoldsLoaded(hold, record.holds))
        self.keeper.save_soon()
        self.evaluate()

    def set_holds(self, holds: Holds) -> None:
        """Replace the node-wide holds; those of the engines are with their gates."""
        self._holds = replace(holds, engines=self._holds.engines)

    def _config(self, name: str, engine: Engine) -> GateConfig:
        grace_s = engine.gate.drain_grace_s
        return GateConfig(name, self.profile.mode, grace_s, self.unwaivable, self.boot_id, engine.follows)

    def _evidence(self, name: str, snapshot: Snapshot) -> Evaluated:
        """What is known now of one engine."""
        judgement = judge(snapshot, self.profile, name, self.checks, self.clock.mono_s())
        judgement = without_carried(judgement, snapshot, self.checks, name, self.profile.engines[name])
        status, group = self._status(name), self.groups.get(name)
        if group is None:
            return Evaluated(judgement, status, self.clock.wall_s())
        judgement, over = group.take(judgement, status, self.records[name])
        return Evaluated(judgement, status, self.clock.wall_s(), over)

    def _status(self, name: str) -> EngineStatus:
        """The controller's word; without one, in mode observe, nothing is known to run."""
        hands = self.hands.get(name)
        return hands.status if hands else EngineStatus(name, EnginePhase.ABSENT, 0.0, "not watched")

    def _act(self, name: str, action: GateAction) -> None:
        """Carry out one thing that a gate asks for."""
        hands = self.hands.get(name)
        match action:
            case StartEngine() if hands is not None:
                hands.start_engine()
            case StopEngine(grace_s=grace_s) if hands is not None:
                hands.stop_engine(grace_s)
            case SaveHolds():
                self.keeper.save_soon()
            case ForgetFaults(faults=faults):
                self._forget(faults)
                if hands is not None:
                    hands.reset_crashes()

    def _forget(self, faults: tuple[tuple[str, str], ...]) -> None:
        """Have what an operator has dealt with checked anew, and the kernel log up to now left out."""
        now_mono_s = self.clock.mono_s()
        self.ports.clear_log(now_mono_s)
        self._holds = replace(self._holds, log_cleared=LogCleared(self.boot_id, now_mono_s))
        for check, subject in faults:
            self.ports.forget(check, subject)

    def _tell_change(self, before: GateRecord, after: GateRecord) -> None:
        """One line and one journal row for each transition."""
        name = after.config.engine
        old, new, why = before.state, after.state, after.reason
        said = about(Event.GATE_CHANGED, engine=name, old=old, new=new, reason=why)
        log.info("gate %s: %s -> %s: %s", name, old, new, why, extra=said)
        evidence = {"forced": after.forced, "blocking": [self.ports.explain(b) for b in after.blockers]}
        self.ports.journal.record_gate(name, old, new, why, evidence, boot_id=self.boot_id)
        if name in self.hands:
            self.hands[name].set_taking_traffic(after.ready)

    def _tell_serving(self) -> None:
        """Tell the runner when the first gate opens or the last one closes."""
        serving = any(record.in_service for record in self.records.values())
        if serving is not self._serving:
            self._serving = serving
            self.ports.on_serving(serving)
