"""bmc.events: has the BMC logged something Critical lately, since this agent has been looking?

Redfish: LogServices of systems and managers (bmc_log.py). What a log held at the first look is its baseline.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.bmc_common import (
    CLEAR_FOR_S,
    DEADLINE_S,
    FAIL_FOR_S,
    NODE,
    PERIOD_S,
    UNKNOWN_FOR_S,
    judge_node,
    merged,
    no_bmc,
)
from agent.checks.bmc_log import Log, logs_of
from agent.checks.redfish_tree import Service
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_READ = advice.person("Read the BMC's event log and act on the part that it names before it fails for good.")


class EventLimits(Limits):
    """Tolerances of bmc.events."""

    window_s: float = Field(
        3600.0, description="Seconds for which a new Critical entry is told", gt=0, le=7 * 86400
    )
    allowed: int = Field(0, description="New Critical entries in that time that are no warning", ge=0)


@check(
    "bmc.events",
    title="New critical BMC events",
    source="Redfish Systems/*/LogServices, Managers/*/LogServices: Entries: Id, Created, Severity",
    # History, not state: what is still wrong is for bmc.health, bmc.power and the others to judge.
    serving_class=ServingClass.INFO,
    limits=EventLimits,
    period_s=PERIOD_S,
    deadline_s=DEADLINE_S,
    fail_for_s=FAIL_FOR_S,
    clear_for_s=CLEAR_FOR_S,
    unknown_for_s=UNKNOWN_FOR_S,
    unknown_blocks_admission=False,
    needs_interval_s=10.0,
    skip=no_bmc,
    action=_READ,
)
def bmc_events(sources: Sources, profile: NodeProfile, limits: EventLimits) -> Iterator[Finding]:
    """Critical entries that were added to a log in the last hour are a warning, with the newest of them."""
    yield judge_node(sources, profile, lambda service: _judge(service, sources, limits))


def _judge(service: Service, sources: Sources, limits: EventLimits) -> Finding:
    logs = logs_of(service)
    if not logs:
        raise ParseError("the BMC shows no event log")
    remarks = [_judge_log(log, sources, limits) for log in logs]
    old = sum(log.criticals for log in logs)
    names = ", ".join(log.name for log in logs)
    summary = f"no new critical entry in {names}" + (f" ({old} older)" if old else "")
    passed = Finding(NODE, Verdict.PASS, summary, 0, limits.allowed, basis=Basis.limit("allowed"))
    return merged(remarks, passed)


def _judge_log(log: Log, sources: Sources, limits: EventLimits) -> Finding:
    if log.problem is not None:
        return Finding(NODE, Verdict.UNKNOWN, f"log {log.name}: {log.problem}")
    now_s = sources.clock.mono_s()
    try:
        newest = sources.counters.delta(f"bmc.events.{log.name}.newest", log.newest, now_s, limits.window_s)
    except BaselineOnly:
        return Finding(NODE, Verdict.UNKNOWN, "baseline taken, a second sample is needed")
    known = log.newest - newest.delta
    fresh = [entry for entry in log.entries if entry.critical and entry.order > known]
    if len(fresh) <= limits.allowed:
        return Finding(NODE, Verdict.PASS, f"log {log.name} has no new critical entry")
    minutes = limits.window_s / 60
    summary = f"log {log.name}: {len(fresh)} new critical in {minutes:g} min, newest: {fresh[-1].words}"
    basis = Basis.limit("allowed")
    return Finding(NODE, Verdict.WARN, summary, len(fresh), limits.allowed, "entries", _READ, basis=basis)
