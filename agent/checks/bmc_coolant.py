"""bmc.coolant: does coolant flow, and is it cold enough, at the node and at the cooling units of the profile?

Redfish: Chassis/*/ThermalSubsystem/CoolantConnectors, else sensors (bmc_coolant_readings.py); of a unit
ThermalEquipment/CDUs/*: Status, SecondaryCoolantConnectors, Pumps, LeakDetection. Many nodes share a loop, so
nothing here closes a serving gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.bmc_profile import Coolant
from agent.checks import advice
from agent.checks.bmc_common import (
    CLEAR_FOR_S,
    DEADLINE_S,
    FAIL_FOR_S,
    NODE,
    PERIOD_S,
    UNKNOWN_FOR_S,
    above,
    judge_health,
    judge_node,
    judge_service,
    measure,
    merged,
    missing,
    unreadable,
)
from agent.checks.bmc_coolant_readings import Loop, Loops, of_connectors, of_node
from agent.checks.bmc_leaks import judge_leaks
from agent.checks.redfish_tree import ROOT, Document, Service, in_use, name_of
from agent.checks.registry import Limits, check
from agent.errors import ParseError
from agent.model import Basis, Finding, Measure, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_COOLING = advice.person(
    "Call the cooling team before any load: check valves, pumps and set points of this loop, then flow."
)
_KEYS = ("inlet_max_c", "outlet_max_c", "delta_max_c", "flow_min_l_per_min")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The numbers to compare with, each with the profile key it comes from; a unit may inherit the node's."""

    values: dict[str, tuple[float, str]]

    def basis(self, key: str) -> Basis:
        """Where the number comes from."""
        return Basis.profile(self.values[key][1])


def _wanted(own: Coolant, own_key: str, inherited: Coolant | None = None) -> Wanted:
    values: dict[str, tuple[float, str]] = {}
    for key in _KEYS:
        value = getattr(own, key)
        if value is not None:
            values[key] = (value, f"{own_key}.{key}")
        elif inherited is not None and key != "flow_min_l_per_min":
            value = getattr(inherited, key)
            if value is not None:
                values[key] = (value, f"bmc.cooling.{key}")
    return Wanted(values)


def _nothing_asked(profile: NodeProfile) -> str | None:
    if profile.bmc.cooling.units or (profile.bmc.redfish and _asks(profile)):
        return None
    if _asks(profile):
        return "the profile names no BMC (bmc.redfish) to ask for its coolant numbers"
    return "the profile has no coolant numbers and no cooling units"


def _asks(profile: NodeProfile) -> bool:
    return any(getattr(profile.bmc.cooling, key) is not None for key in _KEYS)


@check(
    "bmc.coolant",
    title="Coolant flow and temperature",
    source="Redfish CoolantConnectors or Sensors of the chassis; ThermalEquipment/CDUs of cooling units",
    serving_class=ServingClass.SOFT,
    period_s=PERIOD_S,
    deadline_s=DEADLINE_S,
    fail_for_s=FAIL_FOR_S,
    clear_for_s=CLEAR_FOR_S,
    unknown_for_s=UNKNOWN_FOR_S,
    unknown_blocks_admission=False,
    skip=_nothing_asked,
    action=_COOLING,
)
def bmc_coolant(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Inlet, outlet, their difference and flow, as far as the profile gives numbers; units must be well."""
    cooling = profile.bmc.cooling
    if profile.bmc.redfish is not None and _asks(profile):
        wanted = _wanted(cooling, "bmc.cooling")
        yield judge_node(sources, profile, lambda service: _judge_node(service, wanted))
    for name, unit in cooling.units.items():
        judge = _unit_judge(_wanted(unit, f"bmc.cooling.units.{name}", cooling))
        yield judge_service(sources, name, unit, f"cdu:{name}", judge)


def _judge_node(service: Service, wanted: Wanted) -> Finding:
    found = of_node(service)
    return merged(_judge_loops(NODE, found, wanted), _passed(NODE, found.loops, wanted))


def _unit_judge(wanted: Wanted) -> Callable[[Service], Finding]:
    return lambda service: _judge_unit(service, wanted)


def _judge_unit(service: Service, wanted: Wanted) -> Finding:
    """Every CDU that the service shows: its own word, its pumps, its leak detectors, its secondary loop."""
    units = service.collection(f"{ROOT}/ThermalEquipment/CDUs")
    used = [unit for unit in units if in_use(unit)]
    if not used:
        raise units.broken[0] if units.broken else ParseError("the service shows no cooling unit")
    remarks = unreadable(service.subject, units.broken)
    loops: list[Loop] = []
    for unit in used:
        remarks += judge_health(service.subject, "cooling unit", unit, _COOLING)
        remarks += _pumps(service, unit)
        remarks += judge_leaks(service, unit, _COOLING, None).remarks
        found = of_connectors(service.members(unit, "SecondaryCoolantConnectors"))
        loops += found.loops
        remarks += unreadable(service.subject, found.broken)
    remarks += _judge_loops(service.subject, Loops(tuple(loops)), wanted)
    return merged(remarks, _passed(service.subject, tuple(loops), wanted))


def _pumps(service: Service, unit: Document) -> list[Finding]:
    """One pump of several may stand still: the unit's own health says when that matters."""
    pumps = service.members(unit, "Pumps")
    found = unreadable(service.subject, pumps.broken)
    for pump in pumps:
        for remark in judge_health(service.subject, f"{name_of(unit)} pump", pump, _COOLING):
            worse = remark.verdict is Verdict.FAIL
            found.append(_as_warning(remark) if worse else remark)
    return found


def _as_warning(found: Finding) -> Finding:
    return Finding(
        found.subject,
        Verdict.WARN,
        found.summary,
        found.observed,
        found.expected,
        action=found.action,
        basis=found.basis,
    )


def _judge_loops(subject: str, found: Loops, wanted: Wanted) -> list[Finding]:
    remarks = unreadable(subject, found.broken) if wanted.values else []
    for loop in found.loops:
        if loop.document is not None:
            remarks += judge_health(
                subject, "coolant connector", loop.document, _COOLING, silent=Verdict.PASS
            )
    for key, what, values in (
        ("inlet_max_c", "coolant inlet temperature", [loop.supply_c for loop in found.loops]),
        ("outlet_max_c", "coolant outlet temperature", [loop.return_c for loop in found.loops]),
        ("delta_max_c", "coolant temperature difference", [loop.difference_c() for loop in found.loops]),
    ):
        if key in wanted.values:
            remarks += _judge_warmest(subject, what, key, values, wanted)
    if "flow_min_l_per_min" in wanted.values:
        remarks += _judge_flow(subject, [loop.flow_l_per_min for loop in found.loops], wanted)
    return remarks


def _judge_warmest(
    subject: str, what: str, key: str, values: list[float | None], wanted: Wanted
) -> list[Finding]:
    known = [value for value in values if value is not None]
    most, origin = wanted.values[key]
    remarks = above(subject, what, max(known), (most, wanted.basis(key)), "C", _COOLING) if known else []
    if len(known) < len(values) or not known:
        remarks.append(missing(subject, what if not known else f"{what} at every connector", origin))
    return remarks


def _judge_flow(subject: str, values: list[float | None], wanted: Wanted) -> list[Finding]:
    """The flow of all connectors together; what is known is a lower bound."""
    least, origin = wanted.values["flow_min_l_per_min"]
    known = [value for value in values if value is not None]
    total = sum(known)
    if known and total >= least:
        return []
    if len(known) < len(values) or not known:
        return [missing(subject, "coolant flow", origin)]
    summary = f"coolant flow {total:g} L/min, at least {least:g} L/min wanted"
    basis = wanted.basis("flow_min_l_per_min")
    return [Finding(subject, Verdict.FAIL, summary, total, least, "L/min", _COOLING, basis=basis)]


def _passed(subject: str, loops: tuple[Loop, ...], wanted: Wanted) -> Finding:
    """The finding for when nothing is wrong; its measures go with any other too."""
    inlet = max((each.supply_c for each in loops if each.supply_c is not None), default=None)
    outlet = max((each.return_c for each in loops if each.return_c is not None), default=None)
    flows = [each.flow_l_per_min for each in loops if each.flow_l_per_min is not None]
    flow = sum(flows) if flows else None
    parts = [
        f"{name} {value:g} {unit}"
        for name, value, unit in (("inlet", inlet, "C"), ("outlet", outlet, "C"), ("flow", flow, "L/min"))
        if value is not None
    ]
    measures: tuple[Measure, ...] = (
        *measure("coolant_inlet_celsius", inlet),
        *measure("coolant_outlet_celsius", outlet),
        *measure("coolant_flow_liters_per_minute", flow),
    )
    key = next(iter(wanted.values), None)
    basis = wanted.basis(key) if key else Basis.standard("Redfish Status.Health")
    summary = ", ".join(parts) or "the cooling unit is well"
    return Finding(subject, Verdict.PASS, summary, measures=measures, basis=basis)
