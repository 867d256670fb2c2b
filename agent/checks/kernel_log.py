"""What checks of the kernel log share: how far back it reaches, and lists of faults on one short line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.sources import Sources

#: A line longer than this is cut: summaries are one short line.
_LONGEST = 230

#: What brings the kernel log, and the key for a machine that has none to show; {} is the check.
NO_LOG = (
    "The kernel log needs CAP_SYSLOG and read access to /dev/kmsg. Where it cannot be had at all, the profile"
    " leaves the check out: checks: {{{}: {{enabled: false}}}}."
)


def reach_note(sources: Sources) -> str:
    """A note for a PASS when the kernel's ring had lost its beginning before it was read, else nothing."""
    since_s = sources.kmsg.complete_since_mono_s()
    if since_s <= 0:
        return ""
    return f" since {since_s / 3600:.1f} h after boot; what came before is lost and not known"


def shortened(parts: Sequence[str], told: int) -> str:
    """`a; b; c and 4 more`, at most `told` of them and never too long for one line."""
    more = f" and {len(parts) - told} more" if len(parts) > told else ""
    text = "; ".join(parts[:told])
    room = _LONGEST - len(more)
    return (text if len(text) <= room else f"{text[: room - 3]}...") + more
