"""What of a publication goes into /metrics beside results: holds, groups and the checklist, as of now."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agent.metrics_more import GroupSample, HoldSample, More, action_of_finding, checklist_sample
from agent.publisher import Publication
from agent.sources.group_reading import GroupObservation


def more_of(current: Publication, now_mono_s: float) -> More:
    """Everything for one page; `now_mono_s` is on the gates' clock."""
    explainer = current.explainer
    return More(
        holds=tuple(_holds(current, now_mono_s)),
        groups=tuple(group_sample(name, group.seen) for name, group in current.groups.items()),
        checklist=checklist_sample(current.checklist),
        mode=current.facts.mode.value,
        action_of=explainer.next_action if explainer else action_of_finding,
    )


def _holds(current: Publication, now_mono_s: float) -> Iterator[HoldSample]:
    """Ages by the wall clock, for holds outlive boots; a clock that was set back makes them 0 s."""
    wall_s = time.time()
    if current.holds.maintenance is not None:
        yield HoldSample("maintenance", "", max(0.0, wall_s - current.holds.maintenance.since_wall_s))
    for name, record in current.records.items():
        held = {
            "quarantine": record.holds.quarantine,
            "drain": record.holds.drain,
            "force_open": record.force_active(now_mono_s),
        }
        for kind, hold in held.items():
            if hold is not None:
                yield HoldSample(kind, name, max(0.0, wall_s - hold.since_wall_s))


def group_sample(engine: str, seen: GroupObservation) -> GroupSample:
    """A group is called after the node of its head, which every member knows."""
    head = next((peer.node for peer in seen.peers if peer.rank == 0), seen.status.node)
    return GroupSample(engine, head, seen.status.rank, 1 + len(seen.peers))
