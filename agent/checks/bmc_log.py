"""The event logs of a BMC, each as entries with a place in their order.

Redfish: Systems/*/LogServices, Managers/*/LogServices: Entries with Id, Created, Severity, Message. The BMC's
clock is not ours and may be set back: an entry's number orders it, its time only where ids are no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agent.checks.redfish_tree import ROOT, Document, Service, in_use, name_of, said, text
from agent.errors import DeviceAbsent, ParseError, SourceError

#: Logs that are not about hardware events, or are large and repeat them.
_NOT_EVENTS = re.compile(
    r"dump|journal|post.?code|audit|console|crash|host.?logger|lclog|access", re.IGNORECASE
)
MAX_LOGS = 12


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; `order` rises from entry to entry."""

    order: int
    critical: bool
    words: str


@dataclass(frozen=True, slots=True)
class Log:
    """One log, oldest entry first, or why it cannot be read."""

    name: str
    entries: tuple[Entry, ...] = ()
    problem: SourceError | None = None

    @property
    def newest(self) -> int:
        """The place of the newest entry; 0 for an empty log."""
        return max((entry.order for entry in self.entries), default=0)

    @property
    def criticals(self) -> int:
        """How many entries are Critical."""
        return sum(entry.critical for entry in self.entries)


def logs_of(service: Service) -> list[Log]:
    """The event logs of all systems and managers. Raises SourceError if none can be found."""
    found: list[Log] = []
    for root in ("Systems", "Managers"):
        owners = service.collection(f"{ROOT}/{root}")
        found += [Log(root, problem=broken) for broken in owners.broken]
        for owner in owners:
            if in_use(owner):
                found += _of_owner(service, owner)
    if len(found) > MAX_LOGS:
        raise ParseError(f"the BMC has {len(found)} event logs")
    return found


def _of_owner(service: Service, owner: Document) -> Iterator[Log]:
    try:
        services = service.members(owner, "LogServices", leave_out=_NOT_EVENTS)
    except DeviceAbsent:
        return
    yield from (Log(f"{name_of(owner)}/any", problem=broken) for broken in services.broken)
    for each in services:
        if each.get("ServiceEnabled") is not False:
            yield _read(service, each, f"{name_of(owner)}/{name_of(each)}")


def _read(service: Service, log: Document, name: str) -> Log:
    try:
        listed = service.members(log, "Entries", expand=True)
        if listed.broken:
            raise listed.broken[0]
        documents = list(listed)
        numbers = [_number(text(document, "Id")) for document in documents]
        by_time = any(each is None for each in numbers)
        entries = [_entry(*pair, by_time) for pair in zip(documents, numbers, strict=True)]
    except SourceError as cause:
        return Log(name, problem=cause)
    return Log(name, tuple(sorted(entries, key=lambda entry: entry.order)))


def _number(id_: str | None) -> int | None:
    return int(id_) if id_ is not None and re.fullmatch(r"[0-9]{1,18}", id_) else None


def _entry(document: Document, id_: int | None, by_time: bool) -> Entry:
    order = _created_ms(document) if by_time or id_ is None else id_
    critical = text(document, "Severity") == "Critical"
    words = text(document, "Message") or text(document, "MessageId") or "an entry without a message"
    return Entry(order, critical, said(words, 90))


def _created_ms(document: Document) -> int:
    """When the BMC says that the entry was made, in milliseconds of its own clock."""
    created = text(document, "Created")
    if created is None:
        raise ParseError("a log entry has neither a number nor a time")
    try:
        return max(0, int(datetime.fromisoformat(created.strip()).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ParseError(f"a log entry was made at {created[:40]!r}, which is no time") from None
