"""history.repeat: does the same part fail again and again, and is it the part or its place that is at fault?

Source: the journal's confirmed faults by part, over reboots. A GPU that fails in two slots is at fault
itself; a slot in which two GPUs have failed is: that is what a swap test is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from agent.checks.ports import no_ports, subject_of
from agent.checks.registry import Limits, check, unknown
from agent.errors import SourceError
from agent.model import Action, ActionKind, Basis, Finding, ServingClass, Verdict, gpu_slot_of
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.fault_history import PartFault

NODE = "node"


def _support(hint: str) -> Action:
    return Action(ActionKind.CONTACT_SUPPORT, hint)


_PART = _support("Open a case with the vendor for this part and attach `nodegate history --json`.")
_PLACE = _support(
    "Have the slot or board looked at: other parts failed there too; attach `nodegate history --json`."
)
_NODE = _support("Take the node out of service and open a case: it has failed too often.")


class RepeatLimits(Limits):
    """Tolerances of history.repeat."""

    xid_count: int = Field(5, description="Fatal Xids of one GPU within the window that escalate", ge=2)
    xid_window_s: float = Field(86_400.0, description="Seconds within which Xids are counted", gt=0)
    node_count: int = Field(5, description="Hardware incidents of the node that escalate", ge=2)
    node_window_s: float = Field(
        7 * 86_400.0, description="Seconds within which hardware incidents of the node are counted", gt=0
    )
    incident_s: float = Field(
        600.0, description="Faults closer together than this are one incident, in seconds", ge=0
    )
    swap_window_s: float = Field(
        30 * 86_400.0, description="Seconds within which places and parts of faults are compared", gt=0
    )


def _nothing_to_follow(profile: NodeProfile) -> str | None:
    if profile.gpus.count == 0 and no_ports(profile) is not None:
        return "the profile has no GPUs and no data ports"
    return None


@check(
    "history.repeat",
    title="Repeated faults",
    source="confirmed faults by part in the journal",
    serving_class=ServingClass.INFO,
    limits=RepeatLimits,
    period_s=60.0,
    deadline_s=5.0,
    fail_for_s=60.0,
    # What happened before says nothing that is needed to serve.
    unknown_blocks_admission=False,
    skip=_nothing_to_follow,
    action=_PART,
)
def history_repeat(sources: Sources, profile: NodeProfile, limits: RepeatLimits) -> Iterator[Finding]:
    """No part may fail again and again, nor two parts in one place, nor one part in two places."""
    places = [f"gpu{number}" for number in range(profile.gpus.count)]
    places += [subject_of(port) for port in profile.fabric.ports]
    now_s = sources.clock.wall_s()
    longest_s = max(limits.xid_window_s, limits.node_window_s, limits.swap_window_s)

    try:
        known = sources.history.faults(now_s - longest_s)
    except SourceError as cause:
        yield from (unknown(subject, cause) for subject in (*places, NODE))
        return
    for place in places:
        yield _judge_place(place, known, profile, now_s, limits)
    yield _judge_node(known, now_s, limits)


def _judge_node(known: Sequence[PartFault], now_s: float, limits: RepeatLimits) -> Finding:
    recent = [f for f in known if f.hardware and f.wall_s >= now_s - limits.node_window_s]
    count = _incidents(recent, limits)
    want, basis = f"< {limits.node_count}", Basis.limit("node_count")
    days = limits.node_window_s / 86_400
    if count < limits.node_count:
        summary = f"{count} hardware incidents in {days:g} days"
        return Finding(NODE, Verdict.PASS, summary, count, want, "incidents", basis=basis)
    summary = f"{count} hardware incidents in {days:g} days, the last: {_short(recent[-1])}"
    return Finding(NODE, Verdict.WARN, summary, count, want, "incidents", _NODE, basis=basis)


def _incidents(faults: Sequence[PartFault], limits: RepeatLimits) -> int:
    """Faults that come together are one: a lost GPU also takes its links down."""
    count, last_s = 0, None
    for fault in faults:
        if last_s is None or fault.wall_s - last_s > limits.incident_s:
            count += 1
        last_s = fault.wall_s
    return count


def _judge_place(
    place: str, known: Sequence[PartFault], profile: NodeProfile, now_s: float, limits: RepeatLimits
) -> Finding:
    here = [f for f in known if f.place == place]
    compared = [f for f in known if f.hardware and f.wall_s >= now_s - limits.swap_window_s]
    pinned = _pinned(place, profile)
    if here and pinned and here[-1].part and here[-1].part != pinned:
        here = [f for f in here if f.part == pinned]  # what failed here is no longer here
    swapped = _swap(place, pinned, compared)
    if swapped is not None:
        summary, action, count = swapped
        basis = Basis.limit("swap_window_s")
        return Finding(place, Verdict.WARN, summary, count, "1", "", action, basis=basis)
    xids = [f for f in here if f.check == "xid" and f.wall_s >= now_s - limits.xid_window_s]
    want, basis = f"< {limits.xid_count}", Basis.limit("xid_count")
    hours = limits.xid_window_s / 3600
    if len(xids) >= limits.xid_count:
        summary = f"{len(xids)} fatal Xids of {_name(xids[-1])} in {hours:g} h, the last: {_short(xids[-1])}"
        return Finding(place, Verdict.WARN, summary, len(xids), want, "Xids", _PART, basis=basis)
    summary = f"{len(here)} faults known of it" if here else "no fault known of it"
    return Finding(place, Verdict.PASS, summary, len(xids), want, "Xids", basis=basis)


def _swap(place: str, pinned: str | None, faults: Sequence[PartFault]) -> tuple[str, Action, str] | None:
    """What faults of one part in two places, or of two parts in one place, say; None for neither."""
    named = [f for f in faults if f.part]
    slot = _slot(place)
    here = [f for f in named if _slot(f.place) == slot]
    parts = list(dict.fromkeys(f.part for f in here))
    if len(parts) > 1:
        kind = "GPUs" if gpu_slot_of(place) is not None else "cards"
        told = ", then ".join(parts[-2:])
        summary = f"{slot} failed with {len(parts)} different {kind} ({told}): the slot or board is at fault"
        return summary, _PLACE, f"{len(parts)} parts"
    part = pinned or (parts[-1] if parts else None)
    of_part = [f for f in named if f.part == part]
    places = list(dict.fromkeys(_slot(f.place) for f in of_part))
    # Told where the part failed last, and not at the place that it has left.
    if len(places) < 2 or _slot(of_part[-1].place) != slot:
        return None
    summary = f"{_name(of_part[-1])} failed in {' and then in '.join(places[-2:])}: the part is at fault"
    return summary, _PART, f"{len(places)} places"


def _pinned(place: str, profile: NodeProfile) -> str | None:
    """The GPU that the profile pins to a slot."""
    slot = gpu_slot_of(place)
    pin = profile.gpus.pins.get(slot) if slot is not None else None
    return pin.uuid if pin is not None else None


def _slot(place: str) -> str:
    """Where a whole part sits: the ports of one card are one place."""
    return place.partition("/")[0]


def _name(fault: PartFault) -> str:
    return fault.part or fault.place


def _short(fault: PartFault) -> str:
    return f"{fault.check} {fault.place}: {fault.summary}"[:100]
