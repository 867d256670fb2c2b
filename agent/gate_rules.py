"""The gate's rules: which state holds, evidence and engine ask for. Pure; the first rule that speaks wins.

Holds come first, then the engine's process, then the evidence. A gate opens only where no rule objects: every
admission check has run and passes, nothing immediate or hard is confirmed, and the engine is warm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.blockers import check_of, not_run, say, unique, waiting_for
from agent.evaluate import Blocker
from agent.gate_record import GateRecord
from agent.model import Action, ActionKind, EnginePhase, GateState, Verdict, engine_of
from agent.node_profile import Mode

#: Phases in which a stop request has something to stop.
LIVE = frozenset({EnginePhase.STARTING, EnginePhase.UP, EnginePhase.WARM})
#: Phases in which processes of the engine may still exist: a closing gate waits for these to end.
_PRESENT = LIVE | {EnginePhase.STOPPING, EnginePhase.EXITED}
_BROKEN = {
    EnginePhase.STOPPING: "the engine is stopping",
    EnginePhase.EXITED: "the engine has ended without being asked",
    EnginePhase.BACKOFF: "the engine crashed and waits before its next start",
    EnginePhase.CRASHLOOP: "the engine has crashed too often",
    EnginePhase.UNKILLABLE: "a process of the engine survived SIGKILL",
}
_NOT_WARM = {
    EnginePhase.ABSENT: (GateState.LAUNCHING, "the engine is not running"),
    EnginePhase.STARTING: (GateState.LAUNCHING, "the engine is starting"),
    EnginePhase.UP: (GateState.WARMING, "the engine answers and is warmed up"),
}
#: States in which an engine that failed behind an open gate is brought back.
_COMING_BACK = frozenset({GateState.FAILED, GateState.PREFLIGHT, GateState.LAUNCHING, GateState.WARMING})
#: A clear has the checks run again at once; for so many seconds what they said before it is not taken as
#: fatal. It blocks all the same.
CLEAR_SETTLES_S = 5.0
#: The check that a blocker names when it is the engine's process, not a check, that keeps the gate closed.
ENGINE_PROCESS = "engine.process"


@dataclass(frozen=True, slots=True)
class Target:
    """The state that a rule asks for."""

    state: GateState
    reason: str
    blockers: tuple[Blocker, ...] = ()
    forced: bool = False


Rule = Callable[[GateRecord, float], Target | None]


def _shutting_down(record: GateRecord, now_mono_s: float) -> Target | None:
    if not record.shutting_down:
        return None
    return _closing(record, now_mono_s, GateState.STOPPED, "the agent is shutting down")


def _observing(record: GateRecord, _now_mono_s: float) -> Target | None:
    if record.config.mode is not Mode.OBSERVE:
        return None
    reason = "mode observe: this node is checked but not gated"
    return Target(GateState.PREFLIGHT, reason, unique(_against_serving(record) + _against_admission(record)))


def _in_maintenance(record: GateRecord, now_mono_s: float) -> Target | None:
    if record.maintenance is None:
        return None
    return _closing(record, now_mono_s, GateState.MAINTENANCE, f"maintenance: {record.maintenance.reason}")


def _quarantined(record: GateRecord, _now_mono_s: float) -> Target | None:
    hold = record.holds.quarantine
    if hold is None:
        return None
    crashed = _phase(record) is EnginePhase.CRASHLOOP
    process = (engine_blocker(record, hold.reason),) if crashed else ()
    return Target(GateState.QUARANTINED, hold.reason, unique(process + _against_serving(record)))


def _drained(record: GateRecord, now_mono_s: float) -> Target | None:
    hold = record.holds.drain
    return _closing(record, now_mono_s, GateState.STOPPED, f"drained: {hold.reason}") if hold else None


def _restarting(record: GateRecord, now_mono_s: float) -> Target | None:
    if not record.restarting:
        return None
    return _closing(record, now_mono_s, GateState.PREFLIGHT, "an operator restarts the engine")


def _without_evidence(record: GateRecord, _now_mono_s: float) -> Target | None:
    if record.judgement is not None and record.engine is not None:
        return None
    state = GateState.BOOTING if record.state is GateState.BOOTING else GateState.PREFLIGHT
    return Target(state, "no evidence yet")


def _engine_broken(record: GateRecord, _now_mono_s: float) -> Target | None:
    engine = record.engine
    if engine is None:
        return None
    if engine.phase in _BROKEN:
        why = engine.reason or _BROKEN[engine.phase]
    elif record.in_service and engine.phase is not EnginePhase.WARM:
        why = engine.reason or f"the engine is {engine.phase} and no longer warm"
    else:
        return None
    return Target(GateState.FAILED, why, (engine_blocker(record, why),))


def _obstructed(record: GateRecord, now_mono_s: float) -> Target | None:
    """What the evidence objects to; a force-open overrides it, less the checks that nothing may override."""
    serving = _against_serving(record)
    opening = _opening(record, now_mono_s)
    admission = _against_admission(record) if opening else ()
    missing = record.judgement.missing if record.judgement and opening else ()
    force = record.force_active(now_mono_s)
    if force is not None:
        serving, admission = (_only_unwaivable(record, some) for some in (serving, admission))
        missing = tuple(name for name in missing if check_of(name) in record.config.unwaivable)
    if serving and not _merely_warming(record, serving):
        return Target(GateState.FAILED, say(serving), unique(serving + admission))
    if record.ready and (missing or admission):
        reasons = unique(admission + not_run(record.config.engine, missing))
        return Target(GateState.FAILED, f"force-open no longer holds: {say(reasons)}", reasons)
    if _phase(record) in (EnginePhase.STARTING, EnginePhase.UP):
        return None
    if missing:
        return Target(
            GateState.PREFLIGHT, waiting_for(missing), not_run(record.config.engine, missing) + admission
        )
    if admission:
        # No evidence yet (a counter's second sample, a source that does not answer) is not evidence against.
        known = any(blocker.verdict is not Verdict.UNKNOWN for blocker in admission)
        # A rank that is done waits for those of the other members of its group.
        done = _phase(record) is EnginePhase.WARM and all(engine_of(b.subject) for b in admission)
        waits = GateState.WARMING if done else GateState.PREFLIGHT
        return Target(GateState.FAILED if known else waits, say(admission), unique(admission))
    return Target(GateState.WARMING, say(serving), serving) if serving else None


def _not_warm(record: GateRecord, _now_mono_s: float) -> Target | None:
    phase = _phase(record)
    if phase not in _NOT_WARM:
        return None
    state, why = _NOT_WARM[phase]
    if record.engine is not None and record.engine.reason:
        why = f"{why} ({record.engine.reason})"
    return Target(state, why, (engine_blocker(record, why),))


def _open(record: GateRecord, now_mono_s: float) -> Target:
    force = record.force_active(now_mono_s)
    opening = _opening(record, now_mono_s)
    overridden = _against_serving(record) + (_against_admission(record) if opening else ())
    if opening and record.judgement is not None:
        overridden += not_run(record.config.engine, record.judgement.missing)
    if force is not None and overridden and not record.config.follower:
        reason = f"FORCED OPEN by {force.who}: {force.reason}"
        return Target(GateState.DEGRADED, reason, unique(overridden), forced=True)
    soft = record.judgement.soft if record.judgement else ()
    if record.config.follower:
        return Target(GateState.MEMBER, "its rank serves through the head of its group", unique(soft))
    if soft:
        return Target(GateState.DEGRADED, say(soft), unique(soft))
    return Target(GateState.SERVING, "every admission check passes and the engine is warm")


_RULES: tuple[Rule, ...] = (
    _shutting_down,
    _observing,
    _in_maintenance,
    _quarantined,
    _drained,
    _restarting,
    _without_evidence,
    _engine_broken,
    _obstructed,
    _not_warm,
)


def decide(record: GateRecord, now_mono_s: float) -> Target:
    """The state that the record asks for now."""
    for rule in _RULES:
        target = rule(record, now_mono_s)
        if target is not None:
            return target
    return _open(record, now_mono_s)


def fatal_fault(record: GateRecord, now_mono_s: float) -> str | None:
    """Why this gate must be quarantined, or None.

    A crash loop always is a reason. A fault of the node is one when it is immediate (GPU lost, fatal Xid)
    and hits a running engine: what NCCL and the engine do after it is not to be trusted, and a fault that
    has "gone away" by the next reading is no proof of health. Before an engine runs the same fault only
    fails admission, so that a GPU that enumerates late does not need an operator. A fault whose remedy is a
    restart of the engine never quarantines.
    """
    engine = record.engine
    if record.config.mode is Mode.OBSERVE or record.maintenance or record.shutting_down or engine is None:
        return None
    cleared_s = record.cleared_mono_s
    if engine.phase is EnginePhase.CRASHLOOP and (cleared_s is None or engine.since_mono_s > cleared_s):
        return engine.reason or _BROKEN[engine.phase]
    if record.judgement is None or not (record.ready or engine.phase in LIVE):
        return None
    if cleared_s is not None and now_mono_s - cleared_s < CLEAR_SETTLES_S:
        return None
    immediate = record.judgement.immediate
    if record.force_active(now_mono_s) is not None:
        immediate = _only_unwaivable(record, immediate)
    fatal = [
        blocker
        for blocker in immediate
        if blocker.verdict is Verdict.FAIL
        and engine_of(blocker.subject) is None
        and blocker.action.kind is not ActionKind.RESTART_ENGINE
    ]
    return say(tuple(fatal)) if fatal else None


def engine_blocker(record: GateRecord, why: str) -> Blocker:
    """The engine's process as a blocker."""
    action, engine, phase = Action(), record.config.engine, _phase(record)
    logs = f"Read `nodegate engine logs {engine}`"
    if phase is EnginePhase.UNKILLABLE:
        action = Action(ActionKind.REBOOT, "Reboot the node: a process of the engine survives SIGKILL.")
    elif phase is EnginePhase.CRASHLOOP:
        hint = f"{logs}, mend the cause, run `nodegate gate clear {engine} --reason TEXT`."
        action = Action(ActionKind.RESTART_ENGINE, hint)
    elif phase in (EnginePhase.EXITED, EnginePhase.BACKOFF):
        action = Action(ActionKind.RESTART_ENGINE, f"{logs}; the agent starts it again by itself.")
    return Blocker(ENGINE_PROCESS, f"engine:{engine}", Verdict.FAIL, why, action)


def _closing(record: GateRecord, now_mono_s: float, final: GateState, reason: str) -> Target:
    """DRAINING until the load balancers' grace is over and the engine has ended, then the final state."""
    in_grace = record.state is GateState.DRAINING and now_mono_s < (record.stop_at_mono_s or 0.0)
    present = record.config.mode is Mode.MANAGE and _phase(record) in _PRESENT
    if record.in_service or in_grace or present:
        return Target(GateState.DRAINING, reason)
    return Target(final, reason)


def _opening(record: GateRecord, now_mono_s: float) -> bool:
    """Whether admission counts: the gate is closed, or a force-open is or would be all that keeps it open."""
    forcing = record.force_active(now_mono_s) is not None and bool(_against_serving(record))
    return not record.in_service or record.forced or forcing


def _phase(record: GateRecord) -> EnginePhase:
    """The engine's phase; nothing known is nothing running."""
    return record.engine.phase if record.engine else EnginePhase.ABSENT


def _against_serving(record: GateRecord) -> tuple[Blocker, ...]:
    """Confirmed immediate and hard faults; the engine's own checks count only once it should be warm."""
    if record.judgement is None:
        return ()
    warm = _phase(record) is EnginePhase.WARM
    both = record.judgement.immediate + record.judgement.hard
    return tuple(blocker for blocker in both if warm or engine_of(blocker.subject) is None)


def _against_admission(record: GateRecord) -> tuple[Blocker, ...]:
    if record.judgement is None:
        return ()
    bridged = record.judgement.bridged if record.relaunching else frozenset()
    return tuple(b for b in record.judgement.admission_blockers if (b.check, b.subject) not in bridged)


def is_relaunching(record: GateRecord, target: Target) -> bool:
    """Whether the gate, on its way to `target`, was open and only its engine failed since.

    A fault of the node, an operator's word or a forced opening end it: then admission counts in full.
    """
    if target.state not in _COMING_BACK or record.forced:
        return False
    if any(engine_of(blocker.subject) is None for blocker in _against_serving(record)):
        return False
    return record.relaunching or record.in_service


def _only_unwaivable(record: GateRecord, blockers: tuple[Blocker, ...]) -> tuple[Blocker, ...]:
    return tuple(blocker for blocker in blockers if blocker.check in record.config.unwaivable)


def _merely_warming(record: GateRecord, blockers: tuple[Blocker, ...]) -> bool:
    """Whether a gate on its way up only waits for the first verdict on the engine that is warm now."""
    on_its_way = record.state in (GateState.PREFLIGHT, GateState.LAUNCHING, GateState.WARMING)
    return on_its_way and all(engine_of(blocker.subject) is not None for blocker in blockers)
