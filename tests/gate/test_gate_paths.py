"""The gate along its paths: every state is reached, each fault and each word ends where it must."""

from __future__ import annotations

import gate_kit as kit
import pytest
from gate_kit import Bench

from agent.errors import IllegalTransition
from agent.evaluate import Judgement
from agent.gate import TRANSITIONS, step
from agent.gate_record import (
    Clear,
    Evaluated,
    ForgetFaults,
    Restart,
    SaveHolds,
    StartEngine,
    StopEngine,
)
from agent.model import EnginePhase as P
from agent.model import GateState as S

HOT = Judgement(admission_blockers=(kit.HEAT,), hard=(kit.HEAT,))
GPU_LOST = Judgement(admission_blockers=(kit.LOST,), immediate=(kit.LOST,))
HUNG = Judgement(immediate=(kit.HUNG,))


def test_from_boot_to_serving_every_state_on_the_way_is_seen() -> None:
    bench = Bench()
    bench.say(Judgement(missing=("gpu.count", "nvlink.links gpu3")))
    assert bench.record.state is S.PREFLIGHT
    assert "2 checks, first gpu.count" in bench.record.reason
    assert [b.subject for b in bench.record.blockers] == ["engine:glm", "gpu3"]
    assert not bench.asked
    bench.say(kit.CLEAN)
    assert bench.asked == [StartEngine(), StartEngine()]
    bench.be(P.STARTING)
    bench.be(P.UP)
    bench.be(P.WARM)
    assert bench.seen == [S.BOOTING, S.PREFLIGHT, S.LAUNCHING, S.WARMING, S.SERVING]
    assert bench.record.ready


def test_an_engine_found_warm_serves_only_after_every_admission_check_has_run() -> None:
    bench = Bench()
    bench.phase = P.WARM
    bench.say(Judgement(missing=("gpu.count",)))
    assert bench.record.state is S.PREFLIGHT
    bench.say(kit.CLEAN)
    assert bench.record.state is S.SERVING
    assert StartEngine() not in bench.asked


def test_admission_failure_and_unknown_keep_the_engine_from_starting() -> None:
    for blocker, state in ((kit.HEAT, S.FAILED), (kit.DRIFT, S.PREFLIGHT)):
        bench = Bench()
        bench.say(Judgement(admission_blockers=(blocker,)))
        assert bench.record.state is state
        assert bench.record.blockers == (blocker,)
        assert not bench.asked


def test_a_passing_fault_closes_and_reopens_with_the_engine_left_running() -> None:
    bench = Bench()
    bench.serve()
    bench.say(HOT)
    assert (bench.record.state, bench.record.blockers) == (S.FAILED, (kit.HEAT,))
    bench.say(Judgement(admission_blockers=(kit.HEAT,)))
    assert bench.record.state is S.FAILED, "the last reading still fails: no admission"
    bench.say(kit.CLEAN)
    assert bench.record.state is S.SERVING
    assert not bench.asked


def test_a_closed_gate_does_not_reopen_while_a_check_is_missing() -> None:
    bench = Bench()
    bench.serve()
    bench.say(HOT)
    bench.say(Judgement(missing=("gpu.count",)))
    assert bench.record.state is S.PREFLIGHT


def test_soft_faults_degrade_and_admission_blockers_alone_do_not_close() -> None:
    bench = Bench()
    bench.serve()
    bench.say(Judgement(admission_blockers=(kit.MARGIN,), soft=(kit.MARGIN,)))
    assert (bench.record.state, bench.record.ready) == (S.DEGRADED, True)
    bench.say(kit.CLEAN)
    assert bench.record.state is S.SERVING


@pytest.mark.parametrize("fault", [kit.LOST, kit.XID])
def test_a_fatal_fault_quarantines_until_cleared_and_stops_the_engine_after_the_grace(fault: object) -> None:
    bench = Bench()
    bench.serve()
    bench.say(Judgement(immediate=(fault,)))  # type: ignore[arg-type]
    assert bench.record.state is S.QUARANTINED
    assert bench.asked[0] == SaveHolds()
    assert StopEngine() not in bench.asked
    bench.say(kit.CLEAN)
    bench.wait(kit.GRACE_S - 0.1)
    assert StopEngine() not in bench.asked
    bench.wait(0.2)
    assert StopEngine() in bench.asked
    bench.be(P.STOPPING)
    bench.be(P.ABSENT)
    assert bench.record.state is S.QUARANTINED, "clean readings do not end it"
    bench.asked.clear()
    bench.feed(Clear())
    assert bench.record.state is S.LAUNCHING
    assert ForgetFaults() in bench.asked
    assert SaveHolds() in bench.asked


def test_a_fatal_fault_before_any_engine_runs_only_fails_admission() -> None:
    bench = Bench()
    bench.say(GPU_LOST)
    assert bench.record.state is S.FAILED
    bench.say(kit.CLEAN)
    assert bench.record.state is S.LAUNCHING


def test_a_dead_canary_closes_at_once_without_quarantine_and_reopens() -> None:
    bench = Bench()
    bench.serve()
    bench.say(HUNG)
    assert bench.record.state is S.FAILED
    bench.say(kit.CLEAN)
    assert bench.record.state is S.SERVING
    assert not bench.asked


def test_an_old_word_on_the_engine_does_not_fail_a_launch() -> None:
    bench = Bench()
    bench.say(HUNG)
    assert bench.record.state is S.LAUNCHING
    bench.be(P.UP)
    bench.be(P.WARM)
    assert bench.record.state is S.WARMING, "warm, but its health check has not said so yet"
    bench.say(kit.CLEAN)
    assert bench.record.state is S.SERVING


def test_a_crash_is_relaunched_only_after_backoff_and_admission() -> None:
    bench = Bench()
    bench.serve()
    bench.be(P.EXITED)
    assert bench.record.state is S.FAILED
    bench.be(P.BACKOFF)
    assert not bench.asked
    hint = bench.record.blockers[0].action.hint
    assert hint.startswith(f"Read `nodegate engine logs {bench.record.config.engine}`;")
    bench.judgement = HOT
    bench.be(P.ABSENT)
    assert (bench.record.state, bench.asked) == (S.FAILED, [])
    bench.say(kit.CLEAN)
    assert bench.record.state is S.LAUNCHING
    assert StartEngine() in bench.asked


SOFT = Judgement(
    admission_blockers=(kit.MARGIN,),
    soft=(kit.MARGIN,),
    bridged=frozenset({(kit.MARGIN.check, kit.MARGIN.subject)}),
)


def test_a_crash_behind_a_degraded_gate_comes_back_degraded() -> None:
    bench = Bench()
    bench.serve()
    bench.say(SOFT)
    for phase in (P.EXITED, P.BACKOFF, P.ABSENT):
        bench.be(phase)
    assert (bench.record.state, bench.record.relaunching) == (S.LAUNCHING, True)
    assert StartEngine() in bench.asked
    bench.be(P.UP)
    bench.be(P.WARM)
    assert (bench.record.state, bench.record.relaunching) == (S.DEGRADED, False)


def test_a_fault_of_the_node_during_the_relaunch_ends_its_privilege() -> None:
    bench = Bench()
    bench.serve()
    bench.say(SOFT)
    bench.be(P.EXITED)
    bench.say(HOT)
    assert bench.record.relaunching is False
    bench.say(SOFT)
    bench.be(P.BACKOFF)
    bench.be(P.ABSENT)
    assert (bench.record.state, bench.asked) == (S.FAILED, [])


def test_a_first_launch_and_an_operators_restart_prove_everything() -> None:
    bench = Bench()
    bench.say(SOFT)
    assert (bench.record.state, bench.record.relaunching) == (S.FAILED, False)
    bench.say(kit.CLEAN)
    for phase in (P.STARTING, P.UP, P.WARM):
        bench.be(phase)
    bench.say(SOFT)
    bench.feed(Restart("new weights"))
    bench.wait(kit.GRACE_S + 1)
    bench.be(P.STOPPING)
    bench.asked.clear()
    bench.be(P.ABSENT)
    assert (bench.record.state, bench.asked) == (S.FAILED, [])


def test_a_restart_while_the_engine_is_brought_back_proves_everything() -> None:
    bench = Bench()
    bench.serve()
    bench.say(SOFT)
    bench.be(P.EXITED)
    bench.be(P.BACKOFF)
    assert bench.record.relaunching is True
    bench.feed(Restart("new weights"))
    bench.asked.clear()
    bench.be(P.ABSENT)
    assert (bench.record.state, bench.record.relaunching, bench.asked) == (S.FAILED, False, [])


def test_a_crash_loop_quarantines_and_clear_starts_again() -> None:
    bench = Bench()
    bench.serve()
    bench.be(P.CRASHLOOP)
    assert bench.record.state is S.QUARANTINED
    hint = bench.record.blockers[0].action.hint
    assert f"run `nodegate gate clear {bench.record.config.engine} --reason TEXT`" in hint
    bench.now += 1
    bench.feed(Clear())
    assert bench.record.state is S.FAILED, "the old loop counts no more"
    bench.be(P.ABSENT)
    assert bench.record.state is S.LAUNCHING
    bench.now += 1
    bench.be(P.CRASHLOOP)
    assert bench.record.state is S.QUARANTINED, "a new loop counts"


def test_an_unkillable_engine_asks_for_a_reboot() -> None:
    bench = Bench()
    bench.serve()
    bench.be(P.UNKILLABLE)
    assert bench.record.state is S.FAILED
    assert bench.record.blockers[0].action.kind == "reboot"


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS) == set(S)
    reached = {S.BOOTING}
    while grown := {after for state in reached for after in TRANSITIONS[state]} - reached:
        reached |= grown
    assert reached == set(S)
    assert all(TRANSITIONS[state] for state in S)


def test_evidence_of_another_engine_is_refused() -> None:
    bench = Bench()
    with pytest.raises(IllegalTransition, match="got the evidence of kimi"):
        step(bench.record, Evaluated(kit.CLEAN, kit.status(P.WARM, name="kimi")), 100.0)
