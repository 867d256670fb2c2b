"""What an agent's brief status says, if it is whole and about the right node; all else is refused (pure)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.profile_yaml import clean

SCHEMA = 1
#: States of a gate that traffic is let in by.
OPEN = frozenset({"serving", "degraded"})
LONGEST_TEXT = 300
#: Ages that no machine has: a year.
_MOST_S = 366 * 86400.0


class Garbage(Exception):
    """It is no status of a nodegate agent, or not of this node; one line."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class Action(_Part):
    """What to do."""

    hint: str = ""
    play: str | None = None


class Reason(_Part):
    """One reason against a gate."""

    check: str
    subject: str
    summary: str = ""
    action: Action = Action()


class Hold(_Part):
    """What an operator has ordered."""

    reason: str
    who: str = ""


class Process(_Part):
    """The engine's process."""

    pid: int | None = None


class Gate(_Part):
    """One engine's gate."""

    engine: str = Field(min_length=1)
    state: str = Field(min_length=1)
    ready: bool
    since_s: float = Field(ge=-_MOST_S, le=_MOST_S)
    reason: str = ""
    forced: bool = False
    drain: Hold | None = None
    quarantine: Hold | None = None
    blocking: list[Reason] = Field(default_factory=list)
    blocking_count: int | None = None
    process: Process | None = None


class Holds(_Part):
    """Holds of the node."""

    maintenance: Hold | None = None
    waivers: list[Any] = Field(default_factory=list)


class Checklist(_Part):
    """A run of a checklist that goes on."""

    name: str
    verdict: str | None = None
    #: False: it was left, or killed, before its end.
    running: bool = True
    step: str | None = None
    done: int = 0
    total: int = 0


class Told(_Part):
    """The status of one agent."""

    version: str
    live: bool
    node: str = ""
    simulated: bool = False
    mode: str = ""
    profile_hash: str = ""
    age_s: float | None = None
    gates: list[Gate]
    holds: Holds = Holds()
    problems: list[str] = Field(default_factory=list)
    verdict: str = "UNKNOWN"
    counts: dict[str, int] = Field(default_factory=dict)
    checklist: Checklist | None = None


def parse(body: bytes, node: str | None) -> Told:
    """The status in an answer. Garbage when it is none, or of another node than `node` (None: of any)."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as cause:
        raise Garbage("what answers there is no nodegate agent: no JSON") from cause
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or "gates" not in data:
        raise Garbage("what answers there is no nodegate agent, or one of another generation")
    if "counts" not in data:  # an agent of before sends everything
        results = data.pop("results", None)
        data["counts"] = _counted(results)
    try:
        told = Told.model_validate(data)
    except ValidationError as cause:
        at = ".".join(str(part) for part in cause.errors()[0]["loc"])
        raise Garbage(f"the agent's status is not whole ({clean(at)})") from cause
    return _consistent(told, node)


def _consistent(told: Told, node: str | None) -> Told:
    """Refuse what contradicts itself; an agent that has published nothing yet has no name to compare."""
    if node is not None and told.gates and told.node != node:
        raise Garbage(f"node {clean(told.node) or '(no name)'} answers at this address")
    if len({gate.engine for gate in told.gates}) != len(told.gates):
        raise Garbage("the agent's status names an engine twice")
    for gate in told.gates:
        if gate.ready and (gate.state not in OPEN or not told.live):
            said = f"{clean(gate.engine)} is ready and {clean(gate.state)}"
            raise Garbage(f"the agent's status contradicts itself: {said}")
    return told


def _counted(results: Any) -> dict[str, int]:
    if not isinstance(results, list):
        return {}
    return dict(Counter(str(one.get("verdict")) for one in results if isinstance(one, dict)))


def line(text: str) -> str:
    """Text of an agent as one printable line that is not endless."""
    return clean(" ".join(text.split()), LONGEST_TEXT)
