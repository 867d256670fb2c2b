"""Which part a subject is: the GPU's UUID in a slot, the NIC's serial number at a port.

Read in the background and remembered, so that a part that is lost is still known by its name when its fault
is recorded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from agent.checks.gpus import slots
from agent.checks.nic_serial import card_serial
from agent.checks.ports import INFINIBAND, subject_of
from agent.errors import SourceError
from agent.model import gpu_slot_of
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

log = logging.getLogger("nodegate.parts")
REFRESH_S = 60.0
#: The most that a single pass waits for the names of the parts, in seconds.
READ_WITHIN_S = 3.0


class PartBook:
    """Parts by subject. `refresh` belongs to one thread at a time, `part_of` to any."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._parts: dict[str, str] = {}

    def part_of(self, subject: str) -> str:
        """The part that a subject is, empty if it is not known or no part (`node`, `engine:glm`)."""
        parts = self._parts
        slot = gpu_slot_of(subject)
        if slot is not None:
            return parts.get(f"gpu{slot}", "")
        return parts.get(subject, "") or parts.get(subject.partition("/")[0], "")

    def refresh(self, sources: Sources, profile: NodeProfile) -> None:
        """Read the GPUs anew, and the cards that are not known yet; what cannot be read stays as it was."""
        parts = dict(self._parts)
        for slot in slots(sources, profile):
            uuid = slot.identity.uuid if slot.identity is not None else None
            if found := uuid or (slot.pin.uuid if slot.pin is not None else None):
                parts[slot.subject] = found
        for port in profile.fabric.ports:
            # A card's serial number is slow to read and cannot change while the node runs.
            if port.device not in parts and (card := _card(sources, port)):
                parts[port.device] = card
            if card := parts.get(port.device, ""):
                parts[subject_of(port)] = card
        self._parts = parts


class PartReader:
    """Refreshes a book again and again, in a daemon thread: a card that is slow to read holds up nobody."""

    def __init__(self, book: PartBook, sources: Sources, profile: Callable[[], NodeProfile]) -> None:
        """Nothing is read before `start`."""
        self._book = book
        self._sources = sources
        self._profile = profile
        self._end = threading.Event()
        self.read_once = threading.Event()
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a reading under way is not waited for."""
        self._end.set()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self._book.refresh(self._sources, self._profile())
            # The edge of the thread: without the names of parts, everything else goes on.
            except Exception:
                log.exception("the parts of the node cannot be read")
            self.read_once.set()
            self._end.wait(REFRESH_S)


def read_parts(sources: Sources, profile: NodeProfile) -> PartBook:
    """What a moment's reading tells of the parts; NVML or a card that hangs tells nothing in that time."""
    book = PartBook()
    reader = threading.Thread(target=book.refresh, args=(sources, profile), name="parts", daemon=True)
    reader.start()
    reader.join(READ_WITHIN_S)
    return book


def place_of(subject: str) -> str:
    """The slot or port of a subject: `gpu3` for `gpu3/link5`."""
    slot = gpu_slot_of(subject)
    return subject if slot is None else f"gpu{slot}"


def _card(sources: Sources, port: NicPort) -> str:
    """The card's serial number, which the kernel shows to root alone, else its GUID; empty for neither."""
    try:
        return card_serial(sources, port)
    except SourceError:
        pass
    try:
        return f"guid {sources.tree.text(f'{INFINIBAND}/{port.device}/node_guid')}"
    except SourceError:
        return ""
