"""Whatever happens, in whatever order: open only on proof, and only transitions of the table."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import gate_kit as kit
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent.errors import IllegalTransition
from agent.evaluate import Judgement
from agent.gate import TRANSITIONS, step
from agent.gate_record import (
    Clear,
    Drain,
    EnterMaintenance,
    Evaluated,
    ExitMaintenance,
    GateEvent,
    HoldsLoaded,
    OpenByForce,
    Restart,
    Resume,
    Shutdown,
    StartEngine,
    StopEngine,
)
from agent.gate_rules import LIVE
from agent.holds import EngineHolds
from agent.model import EnginePhase, GateState
from agent.node_profile import Mode

BLOCKERS = [kit.HEAT, kit.LOST, kit.XID, kit.HUNG, kit.MARGIN, kit.DRIFT]
some = st.lists(st.sampled_from(BLOCKERS), max_size=2, unique=True).map(tuple)
none_or_some = st.one_of(st.just(()), some)
judgements = st.one_of(
    st.just(kit.CLEAN),
    st.builds(
        Judgement,
        admission_blockers=none_or_some,
        immediate=none_or_some,
        hard=none_or_some,
        soft=none_or_some,
        missing=st.sampled_from([(), ("gpu.count",), ("gpu.lost gpu3", "gpu.ecc")]),
    ),
)
operator_events = st.sampled_from(
    [
        Drain(kit.HOLD),
        Resume(),
        Clear(),
        Restart("x"),
        EnterMaintenance(kit.HOLD),
        ExitMaintenance(),
        Shutdown(),
    ]
)


class GateMachine(RuleBasedStateMachine):
    """Random evidence, engine phases, operator words and times; an oracle says what must not be."""

    @initialize(mode=st.sampled_from(list(Mode)), follower=st.booleans())
    def begin(self, mode: Mode, follower: bool) -> None:
        self.now = 100.0
        self.record = kit.new_gate(kit.config(mode, follower=follower), self.now)
        self.rank_over = False
        self.judgement = kit.CLEAN
        self.phase = EnginePhase.ABSENT
        self.fed = False
        self.proven = False

    def _step(self, event: GateEvent) -> None:
        before = self.record
        self.record, actions = step(before, event, self.now)
        after = self.record
        assert after.state is before.state or after.state in TRANSITIONS[before.state]
        if after.ready and not after.forced:
            clean = not self.judgement.missing and not self.judgement.admission_blockers
            # Proof is asked for at the step that opens or that ends a force-open; it holds while open.
            self.proven = (self.proven and before.ready and not before.forced) or (self.fed and clean)
            assert self.proven, "opened without a pass of every admission check"
        else:
            self.proven = False
        for action in actions:
            if isinstance(action, StartEngine):
                assert self.phase is EnginePhase.ABSENT
                assert (
                    after.maintenance is None and after.holds.quarantine is None and after.holds.drain is None
                )
                assert not after.shutting_down
            if isinstance(action, StopEngine):
                assert not after.ready
                assert self.phase in LIVE or self.phase in (EnginePhase.ABSENT, EnginePhase.BACKOFF)
        assert after.config.mode is Mode.MANAGE or not any(
            isinstance(a, StartEngine | StopEngine) for a in actions
        )

    def _evaluate(self) -> None:
        self.fed = True
        against = (kit.GROUP, *self.judgement.immediate) if self.rank_over else self.judgement.immediate
        judgement = replace(self.judgement, immediate=against)
        self._step(Evaluated(judgement, kit.status(self.phase, self.now), self.now, self.rank_over))

    @rule(judgement=judgements)
    def results_change(self, judgement: Judgement) -> None:
        self.judgement = judgement
        self._evaluate()

    @rule(phase=st.sampled_from(list(EnginePhase)))
    def engine_changes(self, phase: EnginePhase) -> None:
        self.phase = phase
        self._evaluate()

    @rule()
    def all_is_well_for_a_while(self) -> None:
        self.judgement, self.phase = kit.CLEAN, EnginePhase.WARM
        for _ in range(4):
            self._evaluate()

    @rule(seconds=st.sampled_from([0.1, 1.0, 11.0, 100.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self._evaluate()

    @rule(event=operator_events)
    def operator(self, event: GateEvent) -> None:
        before = self.record
        try:
            self._step(event)
        except IllegalTransition:
            assert self.record == before
            assert not isinstance(event, Shutdown)

    @rule(over=st.booleans())
    def the_group_ends_or_goes_on(self, over: bool) -> None:
        self.rank_over = over
        self._evaluate()

    @rule(seconds=st.sampled_from([5.0, 50.0]))
    def force(self, seconds: float) -> None:
        with contextlib.suppress(IllegalTransition):
            self._step(OpenByForce(kit.force(self.now + seconds)))

    @rule(held=st.booleans(), quarantined=st.booleans())
    def holds_are_loaded(self, held: bool, quarantined: bool) -> None:
        holds = EngineHolds(quarantine=kit.HOLD if quarantined else None)
        if self.record.state is GateState.BOOTING:
            self._step(HoldsLoaded(kit.HOLD if held else None, holds))

    @invariant()
    def open_only_on_proof(self) -> None:
        record = self.record
        if not record.ready:
            return
        assert self.phase is EnginePhase.WARM
        assert record.maintenance is None and record.holds.quarantine is None and record.holds.drain is None
        assert not record.shutting_down and not record.restarting
        assert record.config.mode is not Mode.OBSERVE
        against = (*self.judgement.immediate, *self.judgement.hard)
        if record.forced:
            force = record.holds.force_open
            assert force is not None and self.now < force.until_mono_s
            blockers = (*against, *self.judgement.admission_blockers)
            assert not any(blocker.check in kit.UNWAIVABLE for blocker in blockers)
            assert record.state is GateState.DEGRADED and record.reason.startswith("FORCED OPEN")
        else:
            assert not against

    @invariant()
    def a_rank_of_a_group_is_never_ready_and_a_head_never_a_member(self) -> None:
        assert not (self.record.config.follower and self.record.ready)
        assert self.record.config.follower or self.record.state is not GateState.MEMBER
        if self.record.state is GateState.MEMBER:
            assert self.phase is EnginePhase.WARM

    @invariant()
    def closed_says_why(self) -> None:
        assert self.record.reason
        assert "\n" not in self.record.reason

    @invariant()
    def quarantine_ends_only_by_a_word(self) -> None:
        if self.record.state is GateState.QUARANTINED:
            assert self.record.holds.quarantine is not None

    @invariant()
    def a_hold_is_never_open(self) -> None:
        if self.record.maintenance is not None and self.record.config.mode is not Mode.OBSERVE:
            assert self.record.state in (GateState.MAINTENANCE, GateState.DRAINING, GateState.STOPPED)


TestGate = GateMachine.TestCase
TestGate.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def test_the_record_is_never_changed_in_place() -> None:
    before = kit.new_gate(kit.config(), 1.0)
    copy = replace(before)
    step(before, Evaluated(kit.CLEAN, kit.status(EnginePhase.ABSENT)), 2.0)
    assert before == copy
