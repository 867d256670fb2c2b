"""What an operator does about a gate, in the order in which it is done. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.model import EnginePhase, GateState
from agent.page.words import cut, lasted
from agent.rows import natural
from agent.rows import subjects as together

#: More orders than these are no order; the table of reasons has all.
MOST_STEPS = 3
_COMING = {
    GateState.BOOTING.value,
    GateState.PREFLIGHT.value,
    GateState.LAUNCHING.value,
    GateState.WARMING.value,
}
STALE = "Look at the agent on the node: `systemctl status nodegate`, `journalctl -u nodegate -n 50`."


def steps(gate: Mapping[str, Any], status: Mapping[str, Any]) -> list[str]:
    """The steps for one engine; what stands in backquotes is typed as it stands."""
    told = [*_orders(gate["blocking"], str(status.get("node") or "NODE"))][:MOST_STEPS]
    last = _ending(gate, status)
    if last:
        told.append(last)
    return told or ["Nothing to do."]


def _orders(blocking: Sequence[Mapping[str, Any]], node: str) -> Iterator[str]:
    """The action of each reason, once, with whom it concerns."""
    subjects: dict[tuple[str, str | None], list[str]] = {}
    for reason in blocking:
        action = reason.get("action") or {}
        if action.get("hint"):
            of = subjects.setdefault((action["hint"], action.get("play")), [])
            of.append(str(reason["subject"]))
    for (hint, play), named in subjects.items():
        first = together(sorted(dict.fromkeys(named), key=natural))
        role = f" Or the playbook: `site.yml --limit {node} --tags {play}`." if play else ""
        yield f"{first}: {cut(hint)}{role}"


def _ending(gate: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """What ends the state itself, once the reasons are dealt with."""
    engine, state, process = gate["engine"], gate["state"], gate["process"] or {}
    if status.get("mode") == "observe":
        return "Mode observe: the profile checks this node and gates nothing."
    if gate["force_open"]:
        left = lasted(gate["force_open"]["left_s"])
        return f"Forced open for another {left}; `nodegate gate clear {engine} --reason TEXT` ends it now."
    if state == GateState.MAINTENANCE:
        return _maintenance(status)
    if state == GateState.QUARANTINED:
        return _once("dealt with", f"nodegate gate clear {engine} --reason TEXT", gate["blocking"])
    if gate["drain"]:
        return f"When the work is done: `nodegate gate resume {engine} --reason TEXT`."
    if state == GateState.FAILED and process.get("phase") == EnginePhase.BACKOFF:
        return f"The agent starts the engine again in {lasted(process.get('retry_in_s') or 0)}."
    if state == GateState.FAILED:
        return "The gate opens again by itself once this is mended."
    if state == GateState.MEMBER:
        return "Nothing to do: the head of its group answers for it."
    return "Wait: it goes on by itself." if state in _COMING and not gate["blocking"] else ""


def _maintenance(status: Mapping[str, Any]) -> str:
    run = status.get("checklist")
    if run is not None and run.get("running"):
        return _under_way(run)
    exit_ = "`nodegate maintenance exit --reason TEXT`"
    if "checklist" in status:
        return f"When the work is done: `nodegate checklist run post-maintenance`, which ends it; or {exit_}."
    return f"When the work is done: {exit_}."


def _under_way(run: Mapping[str, Any]) -> str:
    """Which step of a checklist goes on: until the run has ended there is nothing else to do."""
    at = f"step {min(run['done'] + 1, run['total'])} of {run['total']}"
    title = f" ({cut(run['step_title'])})" if run.get("step_title") else ""
    return f"The checklist {run['name']} goes on, {at}{title}: wait for its end, or for its question."


def _once(what: str, command: str, blocking: Sequence[object]) -> str:
    """The command that an operator gives in the end; it is not to come before the cause is dealt with."""
    before = "Only then" if blocking else f"Once the cause is {what}"
    return f"{before}: `{command}`."
