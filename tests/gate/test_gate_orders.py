"""What operators order of a gate: each word is taken where it belongs and refused elsewhere in one line."""

from __future__ import annotations

from dataclasses import replace

import gate_kit as kit
import pytest
from gate_kit import Bench

from agent.errors import IllegalTransition
from agent.evaluate import Judgement
from agent.gate import LEGAL, step
from agent.gate_record import (
    Clear,
    Drain,
    EnterMaintenance,
    ExitMaintenance,
    ForgetFaults,
    HoldsLoaded,
    OpenByForce,
    Restart,
    Resume,
    SaveHolds,
    Shutdown,
    StartEngine,
    StopEngine,
)
from agent.holds import EngineHolds
from agent.model import EnginePhase as P
from agent.model import GateState as S
from agent.node_profile import Mode

HOT = Judgement(admission_blockers=(kit.HEAT,), hard=(kit.HEAT,))
GPU_LOST = Judgement(admission_blockers=(kit.LOST,), immediate=(kit.LOST,))
HUNG = Judgement(immediate=(kit.HUNG,))


def test_clear_names_the_verdicts_of_this_gate() -> None:
    bench = Bench()
    bench.serve()
    bench.say(GPU_LOST)
    bench.feed(Clear())
    assert ForgetFaults((("gpu.lost", "gpu3"),)) in bench.asked


def test_drain_waits_for_the_grace_then_stops_and_resume_proves_again() -> None:
    bench = Bench()
    bench.serve()
    bench.feed(Drain(kit.HOLD))
    assert bench.record.state is S.DRAINING
    bench.wait(kit.GRACE_S + 0.1)
    assert StopEngine() in bench.asked
    bench.be(P.STOPPING)
    bench.be(P.ABSENT)
    assert bench.record.state is S.STOPPED
    bench.seen.clear()
    bench.seen.append(bench.record.state)
    bench.feed(Resume())
    assert bench.seen == [S.STOPPED, S.PREFLIGHT, S.LAUNCHING]


def test_resume_within_the_grace_keeps_the_engine() -> None:
    bench = Bench()
    bench.serve()
    bench.feed(Drain(kit.HOLD))
    bench.feed(Resume())
    assert bench.record.state is S.SERVING
    bench.wait(kit.GRACE_S * 2)
    assert StopEngine() not in bench.asked


def test_maintenance_drains_then_holds() -> None:
    bench = Bench()
    bench.serve()
    bench.feed(EnterMaintenance(kit.HOLD))
    assert bench.record.state is S.DRAINING
    bench.wait(kit.GRACE_S + 0.1)
    bench.be(P.ABSENT)
    assert bench.record.state is S.MAINTENANCE
    bench.feed(ExitMaintenance())
    assert bench.record.state is S.LAUNCHING


def test_holds_from_disk_count_before_any_evidence_and_stop_an_engine_that_is_found() -> None:
    bench = Bench()
    bench._step(HoldsLoaded(kit.HOLD, EngineHolds()))
    assert bench.record.state is S.MAINTENANCE
    bench.be(P.WARM)
    assert (bench.record.state, StopEngine() in bench.asked) == (S.DRAINING, True)
    bench.be(P.ABSENT)
    assert bench.record.state is S.MAINTENANCE


def test_maintenance_left_before_any_evidence_is_preflight() -> None:
    bench = Bench()
    bench._step(HoldsLoaded(kit.HOLD, EngineHolds()))
    bench._step(ExitMaintenance())
    assert bench.record.state is S.PREFLIGHT


def test_restart_goes_through_a_drain() -> None:
    bench = Bench()
    bench.serve()
    bench.feed(Restart("new weights"))
    assert bench.record.state is S.DRAINING
    bench.wait(kit.GRACE_S + 0.1)
    bench.be(P.STOPPING)
    bench.be(P.ABSENT)
    assert bench.record.state is S.LAUNCHING
    assert bench.asked[-1] == StartEngine()


def test_a_restart_under_way_can_be_turned_into_a_stop() -> None:
    bench = Bench()
    bench.serve()
    bench.feed(Restart("new weights"))
    bench.feed(Drain(kit.HOLD))
    assert bench.record.state is S.DRAINING
    with pytest.raises(IllegalTransition, match="its gate is draining"):
        bench.feed(Drain(kit.HOLD))
    bench.wait(kit.GRACE_S + 0.1)
    bench.be(P.STOPPING)
    bench.be(P.ABSENT)
    assert bench.record.state is S.STOPPED
    assert StartEngine() not in bench.asked[1:]
    bench.feed(Resume())
    assert bench.record.state is S.LAUNCHING


def test_restart_does_not_wait_for_the_backoff() -> None:
    bench = Bench()
    bench.serve()
    bench.be(P.BACKOFF)
    bench.feed(Restart("the cause is mended"))
    assert StopEngine() in bench.asked
    bench.be(P.ABSENT)
    assert bench.record.state is S.LAUNCHING


def test_force_open_overrides_waivable_blockers_until_its_end() -> None:
    bench = Bench()
    bench.serve()
    bench.say(Judgement(admission_blockers=(kit.HEAT, kit.DRIFT), hard=(kit.HEAT,), missing=("gpu.ecc",)))
    bench.feed(OpenByForce(kit.force(bench.now + 60)))
    assert (bench.record.state, bench.record.forced) == (S.DEGRADED, True)
    assert bench.record.reason == "FORCED OPEN by uid 0: the fleet is down"
    assert {b.check for b in bench.record.blockers} == {"gpu.thermal_margin", "gpu.persistence", "gpu.ecc"}
    bench.wait(61)
    assert (bench.record.state, bench.record.forced) == (S.FAILED, False)
    assert bench.record.holds.force_open is None


def test_the_end_of_a_force_open_asks_for_a_whole_admission() -> None:
    bench = Bench()
    bench.serve()
    bench.say(HOT)
    bench.feed(OpenByForce(kit.force(bench.now + 60)))
    bench.say(Judgement(admission_blockers=(kit.DRIFT,)))
    assert bench.record.forced, "no fault is left, but admission is not proven"
    bench.wait(61)
    assert (S.FAILED in bench.seen, bench.record.state) == (True, S.PREFLIGHT)
    bench.say(kit.CLEAN)
    assert (bench.record.state, bench.record.forced) == (S.SERVING, False)


def test_force_open_cannot_override_a_dead_engine_or_a_lost_gpu() -> None:
    bench = Bench()
    bench.serve()
    bench.say(HUNG)
    bench.feed(OpenByForce(kit.force(bench.now + 60)))
    assert bench.record.state is S.FAILED
    bench.say(GPU_LOST)
    assert bench.record.state is S.QUARANTINED


def test_force_open_waits_for_a_check_that_nothing_overrides_and_launches_without_the_rest() -> None:
    bench = Bench()
    bench.say(Judgement(missing=("gpu.lost gpu3", "gpu.ecc")))
    bench.feed(OpenByForce(kit.force(bench.now + 60)))
    assert bench.record.state is S.PREFLIGHT
    bench.say(Judgement(missing=("gpu.ecc",)))
    assert bench.record.state is S.LAUNCHING


def test_force_open_survives_a_waivable_fatal_fault_but_no_hold() -> None:
    bench = Bench()
    bench.serve()
    bench.feed(OpenByForce(kit.force(bench.now + 60)))
    assert (bench.record.state, bench.record.forced) == (S.SERVING, False), "nothing to force"
    bench.say(Judgement(immediate=(kit.XID,)))
    assert (bench.record.state, bench.record.forced) == (S.DEGRADED, True)
    bench.feed(EnterMaintenance(kit.HOLD))
    assert bench.record.state is S.DRAINING


def test_shutdown_drains_stops_and_takes_no_more_orders() -> None:
    bench = Bench()
    bench.serve()
    bench.feed(Shutdown())
    assert bench.record.state is S.DRAINING
    with pytest.raises(IllegalTransition, match="shutting down"):
        bench.feed(Drain(kit.HOLD))
    bench.wait(kit.GRACE_S + 0.1)
    bench.be(P.ABSENT)
    assert bench.record.state is S.STOPPED


def test_mode_gate_never_starts_or_stops_an_engine() -> None:
    bench = Bench(Mode.GATE)
    bench.settle()
    assert bench.record.state is S.LAUNCHING
    bench.be(P.UP)
    bench.be(P.WARM)
    assert bench.record.state is S.SERVING
    bench.be(P.ABSENT)
    assert S.FAILED in bench.seen
    bench.be(P.WARM)
    bench.feed(Drain(kit.HOLD))
    assert bench.record.state is S.DRAINING
    bench.wait(kit.GRACE_S + 0.1)
    assert bench.record.state is S.STOPPED
    assert {type(action) for action in bench.asked} == {SaveHolds}
    bench.feed(Resume())
    with pytest.raises(IllegalTransition, match="does not run this engine"):
        bench.feed(Restart("x"))


def test_mode_observe_never_opens() -> None:
    bench = Bench(Mode.OBSERVE)
    bench.phase = P.WARM
    bench.settle()
    assert bench.record.state is S.PREFLIGHT
    with pytest.raises(IllegalTransition, match="mode observe"):
        bench.feed(OpenByForce(kit.force(bench.now + 60)))


EVENTS = {
    Drain: Drain(kit.HOLD),
    Resume: Resume(),
    Clear: Clear(),
    Restart: Restart("x"),
    OpenByForce: OpenByForce(kit.force(1e9)),
    EnterMaintenance: EnterMaintenance(kit.HOLD),
    ExitMaintenance: ExitMaintenance(),
}


@pytest.mark.parametrize("kind", list(LEGAL), ids=lambda kind: kind.__name__)
def test_a_word_out_of_place_is_refused_in_one_line(kind: type) -> None:
    for state in set(S) - LEGAL[kind]:
        bench = Bench()
        holds = EngineHolds(drain=kit.HOLD)
        record = replace(
            bench.record, state=state, holds=holds, maintenance=kit.HOLD if kind is ExitMaintenance else None
        )
        with pytest.raises(IllegalTransition, match=f"glm: its gate is {state}") as refused:
            step(record, EVENTS[kind], 100.0)
        assert "\n" not in str(refused.value)
