"""bmc.health: what the BMC says of the system as a whole, and whether it believes that it is on.

Redfish: /redfish/v1/Systems/*: Status.HealthRollup, Status.Conditions, PowerState (ComputerSystem schema).
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.bmc_common import (
    CLEAR_FOR_S,
    DEADLINE_S,
    FAIL_FOR_S,
    NODE,
    PERIOD_S,
    UNKNOWN_FOR_S,
    judge_health,
    judge_node,
    merged,
    no_bmc,
    unreadable,
)
from agent.checks.redfish_tree import ROOT, Document, Service, health, in_use, name_of, objects, said, text
from agent.checks.registry import Limits, check
from agent.errors import ParseError, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_LOOK = advice.person("Look at the health page and the event log of the BMC for the part that it names.")
_POWER = advice.person(
    "Check that bmc.redfish.url is this node's own BMC; a system that is off cannot run this agent."
)


@check(
    "bmc.health",
    title="System health by the BMC",
    source="Redfish Systems/*: Status.HealthRollup, PowerState",
    serving_class=ServingClass.SOFT,
    period_s=PERIOD_S,
    deadline_s=DEADLINE_S,
    fail_for_s=FAIL_FOR_S,
    clear_for_s=CLEAR_FOR_S,
    unknown_for_s=UNKNOWN_FOR_S,
    unknown_blocks_admission=False,
    skip=no_bmc,
    action=_LOOK,
)
def bmc_health(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No system may be Critical with all its parts taken together, and each must be on."""
    yield judge_node(sources, profile, lambda service: _judge(service, profile))


def _judge(service: Service, profile: NodeProfile) -> Finding:
    systems = service.collection(f"{ROOT}/Systems")
    used = [system for system in systems if in_use(system)]
    if not used and not systems.broken:
        raise ParseError("the BMC shows no system")
    remarks = unreadable(NODE, systems.broken)
    for system in used:
        found = judge_health(NODE, "system", system, _LOOK)
        if found and found[0].verdict is not Verdict.UNKNOWN:
            remarks += [_with_parts(found[0], system, service)]
        else:
            remarks += found
        remarks += _judge_power(system) if profile.bmc.power_state else []
    names = ", ".join(name_of(system) for system in used)
    basis = Basis.standard("Redfish Status.Health")
    return merged(remarks, Finding(NODE, Verdict.PASS, f"{names}: OK and on", "OK", "OK", basis=basis))


def _judge_power(system: Document) -> list[Finding]:
    state = text(system, "PowerState")
    if state is None:
        return [Finding(NODE, Verdict.UNKNOWN, f"system {name_of(system)} gives no PowerState")]
    if state == "On":
        return []
    summary = f"the BMC says that system {name_of(system)} is {said(state, 20)}"
    basis = Basis.profile("bmc.power_state")
    return [Finding(NODE, Verdict.FAIL, summary, said(state, 20), "On", action=_POWER, basis=basis)]


def _with_parts(found: Finding, system: Document, service: Service) -> Finding:
    """The finding with the parts that are not well, as far as the BMC names them."""
    try:
        parts = [*_conditions(system), *_summaries(system), *_chassis(service)]
    except SourceError:
        parts = []  # the verdict stands without the names
    if not parts:
        return found
    named = ", ".join(dict.fromkeys(parts))
    return Finding(
        found.subject,
        found.verdict,
        f"{found.summary}: {named}",
        found.observed,
        found.expected,
        action=found.action,
        basis=found.basis,
    )


def _conditions(system: Document) -> Iterator[str]:
    status = system.get("Status")
    for condition in objects(status, "Conditions") if isinstance(status, dict) else []:
        message = condition.get("Message")
        if isinstance(message, str):
            yield said(message, 80)


def _summaries(system: Document) -> Iterator[str]:
    for key in ("MemorySummary", "ProcessorSummary"):
        inner = system.get(key)
        if isinstance(inner, dict) and health(inner) in ("Warning", "Critical"):
            yield f"{key.removesuffix('Summary').lower()} {health(inner)}"


def _chassis(service: Service) -> Iterator[str]:
    for chassis in service.collection(f"{ROOT}/Chassis"):
        if in_use(chassis) and health(chassis) in ("Warning", "Critical"):
            yield f"chassis {name_of(chassis)} {health(chassis)}"
