"""Kernel log records: parse one line, tell what it is about, keep a bounded log. Pure; no file is read here.

Format: https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Sequence

from agent.errors import ParseError
from agent.sources import KmsgRecord
from agent.sources.kmsg_host import family_of

EVENT_XID = "kmsg.xid"
EVENT_NIC = "kmsg.nic"
EVENT_PCIE = "kmsg.pcie"
EVENT_HOST = "kmsg.host"
ALL_EVENTS = (EVENT_XID, EVENT_NIC, EVENT_PCIE, EVENT_HOST)

_LINE = re.compile(r"(\d{1,10}),(\d{1,19}),(\d{1,19}),[^;]*;(.*)", re.DOTALL)
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (EVENT_XID, re.compile(r"NVRM:\s*Xid|SXid|fallen off the bus", re.IGNORECASE)),
    (EVENT_NIC, re.compile(r"mlx5|NETDEV WATCHDOG")),
    (EVENT_PCIE, re.compile(r"pcieport|\bAER\b|PCIe Bus Error|available PCIe bandwidth")),
)
_KEPT_BESIDES = re.compile(r"NVRM|nvidia", re.IGNORECASE)
_XID_KEY = re.compile(
    r"S?Xid\s*\(?(?:PCI:)?([0-9a-fA-F:.]+)[^)]*\)?:?\s*(\d+)(.*)", re.IGNORECASE | re.DOTALL
)
_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}")
#: What differs between lines that say the same: who was running, and numbers other than nought.
_PROCESS = re.compile(r"\b(?:pid|name)=[^,]*,?")
_NUMBER = re.compile(r"(?<![0-9a-zA-Z])(?!0x0+\b)(?:0x[0-9a-fA-F]+|\d+)")
_WORDING_LIMIT = 120
#: Wordings of one Xid of one GPU that are told apart; `Fatal` and `Nonfatal` are two.
_WORDINGS = 16
#: Of one NIC: its driver has many words at its start.
_NIC_WORDINGS = 128

#: Kept of each key (see KmsgLog); the oldest of a key go first, so that a storm of one fault hides no other.
PER_XID_KEY = 64
PER_KIND = 1024
PER_HOST_FAMILY = 256
PER_NIC_WORDING = 32
_ROOM = {EVENT_XID: PER_XID_KEY, EVENT_HOST: PER_HOST_FAMILY, EVENT_NIC: PER_NIC_WORDING}
_XID_KEYS = 4096
_TEXT_LIMIT = 4096


def parse_line(line: str) -> KmsgRecord:
    """One record as read from /dev/kmsg (`6,339,5140900,-;text`), its time in seconds since boot.

    Dictionary lines after the first and text over 4096 characters are dropped. Raises ParseError.
    """
    match = _LINE.fullmatch(line.split("\n", 1)[0])
    if match is None:
        raise ParseError(f"{line[:60]!r} is not a kernel log record")
    prefix, seq, time_us, text = match.groups()
    return KmsgRecord(int(seq), int(time_us) / 1e6, int(prefix) & 7, text[:_TEXT_LIMIT])


def format_line(record: KmsgRecord) -> str:
    """The line that parse_line reads."""
    return f"{record.level},{record.seq},{max(0, round(record.mono_s * 1e6))},-;{record.text}"


def event_kinds(text: str) -> tuple[str, ...]:
    """The events that a record stands for; none for most."""
    kinds = tuple(kind for kind, pattern in _KINDS if pattern.search(text))
    return (*kinds, EVENT_HOST) if family_of(text) is not None else kinds


def matters(text: str) -> bool:
    """Whether a check may want to see this record."""
    return bool(event_kinds(text)) or _KEPT_BESIDES.search(text) is not None


class KmsgLog:
    """The records that matter, bounded by key; thread-safe.

    The key of an Xid is GPU, code and wording (the text decides how bad some codes are), that of a line about
    the host its family, that of a line about a NIC card and wording, that of other lines their kind, and the
    GPU where one is named.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._by_key: dict[tuple[str, ...], deque[KmsgRecord]] = {}
        self._wordings: dict[tuple[str, str], set[str]] = {}
        self._cleared_mono_s = float("-inf")
        self._first: KmsgRecord | None = None

    def add(self, record: KmsgRecord) -> tuple[str, ...]:
        """Keep a record if it matters; the events that it stands for."""
        self._first = self._first or record
        if not matters(record.text):
            return ()
        kinds = event_kinds(record.text)
        with self._lock:
            key = self._key(kinds, record.text)
            room = _ROOM.get(key[0], PER_KIND)
            self._by_key.setdefault(key, deque(maxlen=room)).append(record)
        return kinds

    def records(self) -> Sequence[KmsgRecord]:
        """Oldest first, minus cleared ones."""
        with self._lock:
            kept = [record for records in self._by_key.values() for record in records]
            after_mono_s = self._cleared_mono_s
        return sorted((r for r in kept if r.mono_s > after_mono_s), key=lambda record: record.seq)

    @property
    def complete_since_mono_s(self) -> float:
        """The time of the first record, which the kernel numbers 0 at boot: 0.0 if this one was that."""
        return 0.0 if self._first is None or self._first.seq == 0 else self._first.mono_s

    def clear(self, up_to_mono_s: float) -> None:
        """Forget records up to a time."""
        with self._lock:
            self._cleared_mono_s = max(self._cleared_mono_s, up_to_mono_s)

    def _key(self, kinds: tuple[str, ...], text: str) -> tuple[str, ...]:
        if EVENT_XID not in kinds:
            # Told apart by family even if it names a device: a storm of that device's lines hides it not.
            if family := family_of(text):
                return EVENT_HOST, family
            if EVENT_NIC in kinds:
                return self._bounded(self._nic_key(text))
            return (kinds[0],) if kinds else ("other",)
        match = _XID_KEY.search(text)
        address = _ADDRESS.search(text)
        key: tuple[str, ...] = (EVENT_XID, *([address.group()] if address else []))
        if match is not None:
            key = (EVENT_XID, match[1], match[2], self._wording(match[1], match[2], match[3]))
        return self._bounded(key)

    def _bounded(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """The key, or one for all that come when there are too many."""
        full = len(self._by_key) >= _XID_KEYS and key not in self._by_key
        return (key[0], "more") if full else key

    def _nic_key(self, text: str) -> tuple[str, ...]:
        """Card and wording: refused register reads by the thousand must not hide that the firmware died."""
        address = _ADDRESS.search(text)
        card = address.group() if address else ""
        return EVENT_NIC, card, self._wording(card, EVENT_NIC, text, _NIC_WORDINGS)

    def _wording(self, gpu: str, code: str, text: str, most: int = _WORDINGS) -> str:
        """What the line says of its fault; `more` once a fault has been worded in too many ways."""
        wording = _NUMBER.sub("#", _PROCESS.sub("", text))[:_WORDING_LIMIT]
        known = self._wordings.get((gpu, code), set())
        if wording not in known:
            if len(known) >= most or (not known and len(self._wordings) >= _XID_KEYS):
                return "more"
            self._wordings.setdefault((gpu, code), known).add(wording)
        return wording
