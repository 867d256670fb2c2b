"""The waivers of this machine's daemon, as a pass without the daemon can know them: from the holds file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agent.checks.registry import Check
from agent.errors import SourceUnavailable
from agent.holds import HoldStore, Waiver
from agent.model import Result


@dataclass(frozen=True, slots=True)
class KnownWaivers:
    """Active waivers; `note` says why they may be missing, empty when all is known."""

    waivers: tuple[Waiver, ...] = ()
    note: str = ""

    def applied(self, result: Result, check: Check) -> Result:
        """The result, marked if a waiver covers it."""
        if not check.waivable:
            return result
        covered = any((w.check, w.subject) == (result.check, result.subject) for w in self.waivers)
        return replace(result, waived=True) if covered else result


NO_WAIVERS = KnownWaivers()


def read_waivers(state_dir: Path, wall_s: float) -> KnownWaivers:
    """The waivers that a daemon with this state folder has in force; what cannot be read waives nothing."""
    try:
        waivers = HoldStore(state_dir).waivers()
    except SourceUnavailable as cause:
        return KnownWaivers(note=f"waivers of the daemon are not known here and do not count: {cause}")
    return KnownWaivers(tuple(waiver for waiver in waivers if waiver.active(wall_s)))
