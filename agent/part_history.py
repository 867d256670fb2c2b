"""Which changes of results are faults of a part, to be kept over reboots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.check_track import ResultChange
from agent.model import ActionKind, Result, Verdict
from agent.parts import place_of
from agent.sources.fault_history import PartFault

#: What asks for hands on the hardware or its reset; a setting or a restart of the engine does not.
HARDWARE = frozenset(
    {ActionKind.RESET_GPU, ActionKind.REBOOT, ActionKind.RESEAT_OR_REPLACE, ActionKind.CONTACT_SUPPORT}
)
#: The check whose one result stands for several lines: a new line on top of a FAIL is another fault.
XID = "xid"


def faults_of(changes: Iterable[ResultChange], wall_s: float, boot_id: str) -> Iterator[PartFault]:
    """The faults that have just been confirmed."""
    for change in changes:
        after = change.after
        if after.verdict is Verdict.FAIL and _is_new(change.before, after):
            yield PartFault(
                part=after.part,
                place=place_of(after.subject),
                check=after.check,
                wall_s=wall_s,
                boot_id=boot_id,
                summary=after.finding.summary,
                hardware=after.finding.action.kind in HARDWARE,
            )


def _is_new(before: Result | None, after: Result) -> bool:
    """Whether the FAIL is not the one that was known already, from before a restart of the agent too."""
    if before is None or before.verdict is not Verdict.FAIL:
        return before is None or after.times > before.times
    another_line = after.check == XID and after.raw_verdict is Verdict.FAIL
    return after.times > before.times or (another_line and before.finding.summary != after.finding.summary)
