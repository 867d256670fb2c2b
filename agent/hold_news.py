"""What the log says of holds that began or ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from agent.holds import ForceOpen, Hold, Holds, Waiver
from agent.log_events import Event, about

log = logging.getLogger("nodegate.holds")
_Kept = Hold | ForceOpen | Waiver
#: Kind, engine (empty: the node), and of a waiver what it covers.
_Key = tuple[str, str, str]


def tell_changes(before: Holds, after: Holds) -> None:
    """One line for each hold that is there now and was not, or the other way round."""
    was, now = dict(_all(before)), dict(_all(after))
    for key in sorted(was.keys() | now.keys()):
        if was.get(key) != now.get(key):
            _tell(key, was.get(key), now.get(key))


def _tell(key: _Key, was: _Kept | None, now: _Kept | None) -> None:
    kind, engine, covers = key
    held = now or was
    assert held is not None
    what = " ".join(filter(None, (kind, engine, covers)))
    said = {"hold": kind, "engine": engine or None, "set": now is not None, "who": held.who}
    check, _, subject = covers.partition(" ")
    fields = {**said, "reason": held.reason, "check": check or None, "subject": subject or None}
    words = f"set by {held.who}: {held.reason}" if now is not None else "ended"
    log.info("hold %s: %s", what, words, extra=about(Event.HOLD_CHANGED, **fields))


def _all(holds: Holds) -> Iterator[tuple[_Key, _Kept]]:
    if holds.maintenance is not None:
        yield ("maintenance", "", ""), holds.maintenance
    for engine, held in holds.engines.items():
        kinds = {"quarantine": held.quarantine, "drain": held.drain, "force_open": held.force_open}
        for kind, hold in kinds.items():
            if hold is not None:
                yield (kind, engine, ""), hold
    for waiver in holds.waivers:
        yield ("waiver", "", f"{waiver.check} {waiver.subject}"), waiver
