"""What loads an engine, or its GPUs, is not begun behind an open gate, nor where one may start meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.checklist.daemon_link import DaemonLink
from agent.checklist.model import Checklist
from agent.checklist.record import RunRecord
from agent.checklist.settle import first_open
from agent.commands import typed_here
from agent.errors import ConfigError

#: States of a gate behind which an engine works for clients.
_IN_SERVICE = ("serving", "degraded", "member", "draining")
#: States that only an order ends: in any other the daemon may start the engine at any moment.
_HELD = ("maintenance", "quarantined", "stopped")


def refuse_unless_held(
    daemon: DaemonLink | None, checklist: Checklist, record: RunRecord, run_dir: Path | None = None
) -> None:
    """Raises ConfigError, unless only the gate or what comes after it is left to do: engines start then."""
    at_gate = checklist.gate is not None and first_open(checklist, record.steps) >= checklist.gate
    if checklist.needs != "closed" or daemon is None or at_gate:
        return
    problem = why_not_held(daemon.status(), checklist.name)
    if problem is not None:
        first = 'first: nodegate maintenance enter --reason "..."'
        raise ConfigError(problem, remedy=typed_here(first, run_dir))


def why_not_held(status: Mapping[str, Any], checklist: str) -> str | None:
    """Why a checklist that needs closed gates may not begin, by /status; None when it may (pure)."""
    states = {gate["engine"]: gate["state"] for gate in status["gates"]}
    serving = [engine for engine, state in states.items() if state in _IN_SERVICE]
    if serving:
        return f"{', '.join(serving)} still works for clients, and {checklist} would disturb it"
    free = [f"{engine} ({state})" for engine, state in states.items() if state not in _HELD]
    if free and status.get("mode") == "manage":
        return f"{', '.join(free)} may be started at any moment, beside {checklist}"
    return None
