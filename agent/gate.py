"""The gate of one engine: a pure table, step(record, event, now) -> record, actions.

`LEGAL` says in which states each operator's word is accepted, `TRANSITIONS` which state may follow which,
and gate_rules.py which state the evidence asks for. A step makes at most one transition; the caller steps
again until nothing changes, so that every state on the way is seen, published and recorded.

Why the engine is stopped in quarantine: after a lost GPU or a fatal Xid the engine's NCCL communicators and
CUDA contexts do not recover, its requests hang, and it holds memory that the repair needs free. It is
stopped after the load balancers' grace. A fault that can pass (heat, an NVLink that retrains) only closes
the gate: the engine stays up, so that reopening costs seconds and not a model load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.errors import IllegalTransition
from agent.gate_record import (
    IN_SERVICE,
    OPEN,
    Clear,
    Drain,
    EnterMaintenance,
    Evaluated,
    ExitMaintenance,
    ForgetFaults,
    GateAction,
    GateConfig,
    GateEvent,
    GateRecord,
    HoldsLoaded,
    OpenByForce,
    Restart,
    Resume,
    SaveHolds,
    Shutdown,
    StartEngine,
    StopEngine,
)
from agent.gate_rules import LIVE, Target, decide, fatal_fault, is_relaunching
from agent.holds import Hold
from agent.model import EnginePhase, GateState
from agent.node_profile import Mode

__all__ = ["LEGAL", "OPEN", "TRANSITIONS", "GateConfig", "GateRecord", "new_gate", "step"]

_S = GateState
_ALL = frozenset(GateState)
#: States that end only by a word or an end: what follows is proven again from PREFLIGHT on.
_RESTING = frozenset({_S.BOOTING, _S.DRAINING, _S.STOPPED, _S.QUARANTINED, _S.MAINTENANCE})
_HOLDS = frozenset({_S.DRAINING, _S.STOPPED, _S.QUARANTINED, _S.MAINTENANCE})
_GOING_UP = frozenset({_S.PREFLIGHT, _S.LAUNCHING, _S.WARMING})

#: state -> states that may follow it.
TRANSITIONS: Mapping[GateState, frozenset[GateState]] = {
    _S.BOOTING: _HOLDS | {_S.PREFLIGHT},
    _S.PREFLIGHT: _HOLDS | IN_SERVICE | {_S.LAUNCHING, _S.WARMING, _S.FAILED},
    _S.LAUNCHING: _HOLDS | {_S.PREFLIGHT, _S.WARMING, _S.FAILED},
    _S.WARMING: _HOLDS | IN_SERVICE | {_S.PREFLIGHT, _S.LAUNCHING, _S.FAILED},
    _S.SERVING: frozenset({_S.DEGRADED, _S.DRAINING, _S.FAILED, _S.QUARANTINED}),
    _S.DEGRADED: frozenset({_S.SERVING, _S.DRAINING, _S.FAILED, _S.QUARANTINED}),
    _S.DRAINING: _HOLDS | {_S.PREFLIGHT},
    _S.STOPPED: _HOLDS | {_S.PREFLIGHT},
    _S.MEMBER: frozenset({_S.DRAINING, _S.FAILED, _S.QUARANTINED}),
    _S.FAILED: _HOLDS | IN_SERVICE | _GOING_UP,
    _S.QUARANTINED: _HOLDS | {_S.PREFLIGHT},
    _S.MAINTENANCE: _HOLDS | {_S.PREFLIGHT},
}

_ACTIVE = IN_SERVICE | _GOING_UP | {_S.FAILED}
#: event -> states in which an operator may say it.
LEGAL: Mapping[type[GateEvent], frozenset[GateState]] = {
    Drain: _ACTIVE | {_S.BOOTING},
    Resume: frozenset({_S.DRAINING, _S.STOPPED}),
    Clear: _ALL,
    Restart: IN_SERVICE | {_S.LAUNCHING, _S.WARMING, _S.FAILED},
    OpenByForce: _ACTIVE | {_S.BOOTING},
    EnterMaintenance: _ALL,
    ExitMaintenance: _ALL,
}


def new_gate(config: GateConfig, now_mono_s: float) -> GateRecord:
    """A closed gate that knows nothing yet."""
    return GateRecord(config=config, since_mono_s=now_mono_s)


def step(
    record: GateRecord, event: GateEvent, now_mono_s: float
) -> tuple[GateRecord, tuple[GateAction, ...]]:
    """Take one event in. Raises IllegalTransition for an event that this gate cannot take now."""
    _refuse_illegal(record, event)
    noted, actions = _take(record, event, now_mono_s)
    target = _by_way_of(noted.state, decide(noted, now_mono_s))
    moved = _move(noted, target, now_mono_s)
    return moved, (*actions, *_engine_actions(record.state, moved, now_mono_s))


def _refuse_illegal(record: GateRecord, event: GateEvent) -> None:
    """Say in one line why an operator's word is not accepted."""
    engine, state = record.config.engine, record.state
    if isinstance(event, Evaluated) and event.engine.name != engine:
        raise IllegalTransition(f"the gate of {engine} got the evidence of {event.engine.name}")
    if type(event) not in LEGAL:
        return
    verb = _VERBS[type(event)]
    if record.shutting_down:
        raise IllegalTransition(f"cannot {verb} {engine}: the agent is shutting down")
    if record.config.mode is Mode.OBSERVE and not isinstance(event, EnterMaintenance | ExitMaintenance):
        raise IllegalTransition(
            f"cannot {verb} {engine}: mode observe has no gate; set mode: gate or manage in the profile"
        )
    missing = _lacks(record, event)
    # A restart that is under way can still be turned into a stop.
    stays_stopped = isinstance(event, Drain) and record.restarting and record.holds.drain is None
    if missing or (state not in LEGAL[type(event)] and not stays_stopped):
        raise IllegalTransition(f"cannot {verb} {engine}: {missing or f'its gate is {state}'}")


_VERBS: Mapping[type[GateEvent], str] = {
    Drain: "drain",
    Resume: "resume",
    Clear: "clear",
    Restart: "restart",
    OpenByForce: "force open",
    EnterMaintenance: "enter maintenance of",
    ExitMaintenance: "exit maintenance of",
}


def _lacks(record: GateRecord, event: GateEvent) -> str | None:
    """What an operator's word needs besides the state, when it is not there."""
    match event:
        case Resume() if record.holds.drain is None:
            return "it is not drained"
        case Restart() if record.config.mode is not Mode.MANAGE:
            return "mode gate: nodegate does not run this engine"
        case EnterMaintenance() if record.maintenance is not None:
            return "the node is in maintenance already"
        case OpenByForce() if record.config.follower:
            return "it is a rank of a group, and only the head of a group is ever ready"
        case ExitMaintenance() if record.maintenance is None:
            return "the node is not in maintenance"
        case _:
            return None


def _take(
    record: GateRecord, event: GateEvent, now_mono_s: float
) -> tuple[GateRecord, tuple[GateAction, ...]]:
    """The record with the event noted, and what follows from the event itself."""
    holds = record.holds
    match event:
        case Evaluated():
            return _take_evidence(record, event, now_mono_s)
        case HoldsLoaded(maintenance=maintenance, holds=loaded):
            return replace(record, maintenance=maintenance, holds=loaded), ()
        case Shutdown():
            return replace(record, shutting_down=True), ()
        case Restart():
            # Also ends the wait before the next try of an engine that has crashed.
            waits = record.engine is not None and record.engine.phase is EnginePhase.BACKOFF
            again = replace(record, restarting=True, relaunching=False)
            return again, (StopEngine(),) if waits else ()
        case Drain(hold=hold):
            return replace(record, holds=replace(holds, drain=hold)), (SaveHolds(),)
        case Resume():
            return replace(record, holds=replace(holds, drain=None)), (SaveHolds(),)
        case OpenByForce(force=force):
            return replace(record, holds=replace(holds, force_open=force)), (SaveHolds(),)
        case EnterMaintenance(hold=hold):
            return replace(record, maintenance=hold), (SaveHolds(),)
        case ExitMaintenance():
            return replace(record, maintenance=None), (SaveHolds(),)
        case Clear():
            cleared = replace(holds, quarantine=None, force_open=None)
            return (
                replace(record, holds=cleared, cleared_mono_s=now_mono_s),
                (ForgetFaults(_faults(record)), SaveHolds()),
            )


def _take_evidence(
    record: GateRecord, event: Evaluated, now_mono_s: float
) -> tuple[GateRecord, tuple[GateAction, ...]]:
    """Note the evidence; a fatal fault becomes a quarantine at once: the next reading may look clean."""
    noted = replace(record, judgement=event.judgement, engine=event.engine, rank_over=event.rank_over)
    if noted.holds.force_open is not None and noted.force_active(now_mono_s) is None:
        noted = replace(noted, holds=replace(noted.holds, force_open=None))
    why = fatal_fault(noted, now_mono_s) if noted.holds.quarantine is None else None
    if why is None:
        return noted, () if noted.holds == record.holds else (SaveHolds(),)
    hold = Hold(why, "nodegate", event.wall_s, record.config.boot_id)
    return replace(noted, holds=replace(noted.holds, quarantine=hold)), (SaveHolds(),)


def _by_way_of(state: GateState, target: Target) -> Target:
    """The next stop on the way: a resting gate proves itself again, a launch is seen to warm up."""
    if state is _S.BOOTING and target.state is _S.BOOTING:
        return target
    if state in _RESTING and target.state not in _HOLDS | {_S.PREFLIGHT}:
        return Target(_S.PREFLIGHT, "the evidence is gone through again", target.blockers)
    if state is _S.LAUNCHING and target.state in IN_SERVICE:
        return Target(_S.WARMING, "the engine is warm", target.blockers)
    return target


def _move(record: GateRecord, target: Target, now_mono_s: float) -> GateRecord:
    """The record in its new state, with the times that begin and end with a state."""
    changed = target.state is not record.state
    if changed and target.state not in TRANSITIONS[record.state]:
        raise IllegalTransition(
            f"gate of {record.config.engine}: no way from {record.state} to {target.state}"
        )
    stop_at_s = None
    if target.state in (_S.DRAINING, _S.QUARANTINED):
        grace_s = record.config.drain_grace_s if record.in_service else 0.0
        stop_at_s = record.stop_at_mono_s if record.stop_at_mono_s is not None else now_mono_s + grace_s
    return replace(
        record,
        state=target.state,
        since_mono_s=now_mono_s if changed else record.since_mono_s,
        reason=target.reason,
        blockers=target.blockers,
        forced=target.forced,
        restarting=record.restarting and target.state is _S.DRAINING,
        relaunching=is_relaunching(record, target),
        stop_at_mono_s=stop_at_s,
    )


def _engine_actions(before: GateState, record: GateRecord, now_mono_s: float) -> tuple[GateAction, ...]:
    """What the state asks of the engine, at each step until the engine's phase shows that it was heard."""
    engine = record.engine
    if record.config.mode is not Mode.MANAGE or engine is None:
        return ()
    if engine.phase is EnginePhase.ABSENT:
        if record.state is _S.LAUNCHING:
            return (StartEngine(),)
        # A start that was asked for and has not begun must not begin behind a closed gate.
        return (StopEngine(),) if before is _S.LAUNCHING else ()
    if record.rank_over and not record.in_service and engine.phase in LIVE:
        return (StopEngine(),)
    if record.stop_at_mono_s is not None and now_mono_s >= record.stop_at_mono_s and engine.phase in LIVE:
        return (StopEngine(),)
    return ()


def _faults(record: GateRecord) -> tuple[tuple[str, str], ...]:
    """The verdicts that an operator's clear forgets: all that keep this gate closed, and no other gate's."""
    if record.judgement is None:
        return ()
    known = (*record.judgement.immediate, *record.judgement.hard, *record.judgement.admission_blockers)
    return tuple(dict.fromkeys((blocker.check, blocker.subject) for blocker in known))
