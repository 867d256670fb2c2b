"""What confirmed faults the journal knows of each part, over reboots: the protocol that checks read by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PartFault:
    """One confirmed FAIL of one part; `part` is the GPU's UUID or the NIC's serial, `place` slot or port."""

    part: str
    place: str
    check: str
    wall_s: float
    boot_id: str
    summary: str
    #: Whether its action is hands on the hardware, and not a setting or a restart.
    hardware: bool = True


class FaultHistory(Protocol):
    """Confirmed faults by part, oldest first."""

    def faults(self, since_wall_s: float) -> Sequence[PartFault]:
        """The faults since a time. Raises SourceUnavailable when the journal cannot be read."""


class NoHistory:
    """A node without a journal (a single pass): there is no history to judge."""

    def faults(self, since_wall_s: float) -> Sequence[PartFault]:
        """Always empty: a single pass keeps no journal, and its check says so."""
        del since_wall_s
        return ()
