"""A step of kind `gate`: the holds end on the proof so far, and the engines serve after their own soak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.checklist.model import GateStep
from agent.checklist.steps import Ended, Surroundings
from agent.errors import DaemonError
from agent.model import Verdict

POLL_S = 1.0
_OPEN = ("serving", "degraded", "member")
#: The daemon may be restarted or busy for a moment; this many silent polls in a row end the step.
_MOST_SILENT = 20


def run_gate_step(step: GateStep, given: Surroundings) -> Ended:
    """Give the order, then wait until every engine's gate is open."""
    if given.daemon is None:
        text = "a captured node has no daemon: no gate was opened"
        return Ended(Verdict.SKIP, text)
    try:
        said = given.daemon.passed(given.record.run_id, step.gate.soak_s)
    except DaemonError as cause:
        return Ended(Verdict.FAIL, f"the daemon refuses: {cause}", hint=step.on_fail)
    for line in said:
        given.say(line)
    ended = _wait(step, given)
    return Ended(ended.verdict, ended.summary, hint=ended.hint, outcome=(*said, *ended.outcome))


def _wait(step: GateStep, given: Surroundings) -> Ended:
    """Until all gates are open, one cannot open, or the time is over."""
    assert given.daemon is not None
    until_s = given.now_s() + step.timeout_s
    silent, last = 0, "nothing was heard of the gates"
    while given.now_s() < until_s:
        given.refuse_if_cancelled()
        try:
            status = given.daemon.status()
        except DaemonError as cause:
            silent, last = silent + 1, str(cause)
            if silent > _MOST_SILENT:
                return Ended(Verdict.UNKNOWN, last, hint=step.on_fail)
            given.sleep(POLL_S)
            continue
        silent = 0
        gates = status["gates"]
        if status.get("mode") == "observe":
            return Ended(Verdict.SKIP, "mode observe: this node is checked but not gated")
        bad = next((told for gate in gates if (told := _cannot_open(gate))), None)
        if bad is not None:
            return Ended(Verdict.FAIL, bad, hint=step.on_fail)
        waiting = [gate for gate in gates if gate["state"] not in _OPEN]
        if not waiting:
            return _opened(step, gates, str(status.get("mode")))
        now = "; ".join(f"{gate['engine']} {gate['state']}: {gate['reason']}" for gate in waiting)
        if now != last:
            given.say(now)
        last = now
        given.sleep(POLL_S)
    return Ended(Verdict.FAIL, f"not open within {step.timeout_s:g} s: {last}", hint=step.on_fail)


def _cannot_open(gate: Mapping[str, Any]) -> str | None:
    """Why a gate will not open by itself."""
    if gate["state"] == "quarantined":
        return f"{gate['engine']} is quarantined: {gate['reason']}"
    if gate["drain"] is not None:
        return (
            f"{gate['engine']} is drained ({gate['drain']['reason']}): nodegate gate resume {gate['engine']}"
        )
    soak = (gate["process"] or {}).get("soak")
    if soak is not None and not soak["passed"]:
        return f"{gate['engine']}: {soak['words']}"
    return None


def _opened(step: GateStep, gates: list[Mapping[str, Any]], mode: str) -> Ended:
    """All are open: what the soak of each has shown."""
    if not gates:
        return Ended(Verdict.SKIP, "the profile has no engines: there is no gate")
    told, verdict = [], Verdict.PASS
    for gate in gates:
        soak = (gate["process"] or {}).get("soak")
        words = f"{gate['engine']} {gate['state']}"
        if gate["state"] == "degraded":
            verdict = Verdict.WARN
            words += f" ({gate['reason']})"
        if soak is not None:
            words += f", {soak['words']}"
        elif mode == "manage" and gate["state"] != "member" and step.gate.soak_s > 0:
            return Ended(
                Verdict.UNKNOWN, f"{gate['engine']} is open without a soak of its own", hint=step.on_fail
            )
        told.append(words)
    return Ended(verdict, "; ".join(told), outcome=tuple(told))
