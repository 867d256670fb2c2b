"""Events of the daemon's log by stable names, for programs that read it (docs/interfaces.md has the table).

A log call gives its event with `extra=about(Event.GATE_CHANGED, engine=...)`; the text format shows none of
it. A line without one is event `log`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

#: Where a record keeps what `about` gave it.
ATTRIBUTE = "nodegate"
Fields = Mapping[str, Any]


class Event(StrEnum):
    """What a line tells; the text beside each is its row of the table."""

    LOG = "log"
    AGENT_STARTED = "agent.started"
    AGENT_STOPPING = "agent.stopping"
    AGENT_BROKE = "agent.broke"
    PROFILE_CHANGED = "profile.changed"
    PROFILE_REFUSED = "profile.refused"
    GATE_CHANGED = "gate.changed"
    CHECK_CHANGED = "check.changed"
    ENGINE_CHANGED = "engine.changed"
    ENGINE_STARTED = "engine.started"
    ENGINE_ENDED = "engine.ended"
    ENGINE_MEASURED = "engine.measured"
    GROUP_CHANGED = "group.changed"
    OPERATOR_ORDER = "operator.order"
    HOLD_CHANGED = "hold.changed"
    CHECKLIST_STEP = "checklist.step"
    JOURNAL_TROUBLE = "journal.trouble"
    JOURNAL_RECOVERED = "journal.recovered"


#: Event -> what it tells, and the keys that its lines have beside those of every line.
EVENTS: Mapping[Event, tuple[str, tuple[str, ...]]] = {
    Event.LOG: ("anything else", ()),
    Event.AGENT_STARTED: ("the agent runs", ()),
    Event.AGENT_STOPPING: ("the agent was asked to stop", ()),
    Event.AGENT_BROKE: ("a part of the agent broke and it ends; `trace` has where", ()),
    Event.PROFILE_CHANGED: ("another profile is in force", ("old", "new")),
    Event.PROFILE_REFUSED: ("a reload was refused; the old profile stays in force", ()),
    Event.GATE_CHANGED: ("a gate changed its state", ("engine", "old", "new", "reason")),
    Event.CHECK_CHANGED: (
        "a confirmed verdict changed; one line a subject",
        ("check", "subject", "old", "new", "summary"),
    ),
    Event.ENGINE_CHANGED: ("an engine's process came into another phase", ("engine", "new", "reason")),
    Event.ENGINE_STARTED: ("the same, into `starting`", ("engine", "new", "reason")),
    Event.ENGINE_ENDED: (
        "the same, into `absent`, `exited`, `crashloop` or `unkillable`",
        ("engine", "new", "reason"),
    ),
    Event.ENGINE_MEASURED: ("a warm-up or a soak has ended", ("engine", "what")),
    Event.GROUP_CHANGED: ("this member's stage in its group changed", ("engine", "new", "reason")),
    Event.OPERATOR_ORDER: ("an operator's order was carried out", ("command", "who", "reason")),
    Event.HOLD_CHANGED: (
        "maintenance, quarantine, drain, force_open or a waiver began (`set`) or ended",
        ("hold", "engine", "set", "who", "reason"),
    ),
    Event.CHECKLIST_STEP: (
        "a checklist came to a step, or to its end",
        ("checklist", "run_id", "step", "verdict"),
    ),
    Event.JOURNAL_TROUBLE: ("the journal does not get to the disk", ()),
    Event.JOURNAL_RECOVERED: ("the journal works again", ()),
}
#: Keys of every line. `engine`, `check` and `subject` are null where the line is about none.
ALWAYS = ("ts", "level", "event", "node", "boot_id", "logger", "message", "engine", "check", "subject")


def about(event: Event, **fields: Any) -> dict[str, Any]:
    """The `extra` of a log call: its event and its fields."""
    return {ATTRIBUTE: ({"event": event.value, **fields},)}


def about_each(event: Event, fields: Sequence[Fields]) -> dict[str, Any]:
    """The `extra` of a line that tells of several subjects at once; as JSON it is a line for each."""
    return {ATTRIBUTE: tuple({"event": event.value, **one} for one in fields)}


def events_table() -> str:
    """The table of docs/interfaces.md."""
    rows = [
        f"| `{event}` | {told} | {', '.join(f'`{key}`' for key in keys)} |".replace("|  |", "| |")
        for event, (told, keys) in EVENTS.items()
    ]
    return "\n".join(["| event | tells that | keys |", "|---|---|---|", *rows])
