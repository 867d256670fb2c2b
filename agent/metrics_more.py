"""What /metrics says for alerts beside verdicts: findings with their action, holds, groups, the checklist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from agent.model import Action, Result, Snapshot, Verdict

#: Verdicts that a person may have to do something about.
_TOLD = (Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class HoldSample:
    """A hold that counts now and for how long it has; `engine` is empty for one of the whole node."""

    hold: str
    engine: str
    age_s: float


@dataclass(frozen=True, slots=True)
class GroupSample:
    """An engine's place in its group; `group` is the same text on every member."""

    engine: str
    group: str
    rank: int
    members: int


@dataclass(frozen=True, slots=True)
class ChecklistSample:
    """The newest run of a checklist on this node; `verdict` is RUNNING while it runs.

    INTERRUPTED: nobody runs it and it has no verdict; it can be resumed.
    """

    name: str
    verdict: str
    done: int
    total: int


def action_of_finding(result: Result) -> Action:
    """The action that the check itself gives."""
    return result.finding.action


@dataclass(frozen=True, slots=True)
class More:
    """All of it, for one page."""

    holds: Sequence[HoldSample] = ()
    groups: Sequence[GroupSample] = ()
    checklist: ChecklistSample | None = None
    #: The profile's mode; empty where none is in force.
    mode: str = ""
    action_of: Callable[[Result], Action] = action_of_finding


def more_families(snapshot: Snapshot, more: More) -> Iterator[Metric]:
    """The families; a node that has no group and no checklist shows none of them."""
    if more.mode:
        mode = GaugeMetricFamily("nodegate_mode", "1 for the mode of the profile in force.", labels=["mode"])
        mode.add_metric([more.mode], 1.0)
        yield mode
    yield _findings(snapshot, more.action_of)
    holds = GaugeMetricFamily(
        "nodegate_hold_age_seconds",
        "Age of each hold: maintenance of the node; quarantine, drain or force_open of an engine.",
        labels=["hold", "engine"],
    )
    for held in more.holds:
        holds.add_metric([held.hold, held.engine], held.age_s)
    yield holds
    yield from _groups(more.groups)
    if more.checklist is not None:
        yield from _checklist(more.checklist)


def _findings(snapshot: Snapshot, action_of: Callable[[Result], Action]) -> Metric:
    """What is neither PASS nor SKIP, with the action that it asks for."""
    family = GaugeMetricFamily(
        "nodegate_check_finding",
        "1 for each WARN, FAIL or UNKNOWN that counts (neither waived nor in shadow), with its action.",
        labels=["check", "subject", "verdict", "action", "play"],
    )
    for (check, subject), result in sorted(snapshot.results.items()):
        if result.verdict in _TOLD and not (result.waived or result.shadow):
            action = action_of(result)
            labels = [check, subject, result.verdict.value, action.kind.value, action.play or ""]
            family.add_metric(labels, 1.0)
    return family


def _groups(groups: Sequence[GroupSample]) -> Iterator[Metric]:
    if not groups:
        return
    family = GaugeMetricFamily(
        "nodegate_group_members",
        "Members of the group that the engine is a rank of; all of them are one instance of the model.",
        labels=["engine", "group", "rank"],
    )
    for one in groups:
        family.add_metric([one.engine, one.group, str(one.rank)], float(one.members))
    yield family


def _checklist(run: ChecklistSample) -> Iterator[Metric]:
    verdict = GaugeMetricFamily(
        "nodegate_checklist_verdict",
        "1 for the verdict of the newest run of a checklist, RUNNING or INTERRUPTED where it has none.",
        labels=["checklist", "verdict"],
    )
    verdict.add_metric([run.name, run.verdict], 1.0)
    steps = GaugeMetricFamily(
        "nodegate_checklist_steps", "Steps of that run, and how many have ended.", labels=["checklist", "of"]
    )
    steps.add_metric([run.name, "done"], float(run.done))
    steps.add_metric([run.name, "total"], float(run.total))
    yield from (verdict, steps)


def checklist_sample(view: Mapping[str, Any] | None) -> ChecklistSample | None:
    """Of what /status says of the checklist."""
    if view is None:
        return None
    going = "RUNNING" if view["running"] else "INTERRUPTED"
    return ChecklistSample(
        str(view["name"]), str(view["verdict"] or going), int(view["done"]), int(view["total"])
    )
