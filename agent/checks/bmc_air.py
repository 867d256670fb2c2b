"""bmc.air: is the air that comes in cool enough, and do the fans turn?

Redfish: Chassis/*/ThermalSubsystem (ThermalMetrics: TemperatureSummaryCelsius; Fans,
FanRedundancy); older: Chassis/*/Thermal (Temperatures with PhysicalContext Intake, Fans, Redundancy).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.checks import advice
from agent.checks.bmc_common import (
    CLEAR_FOR_S,
    DEADLINE_S,
    FAIL_FOR_S,
    NODE,
    PERIOD_S,
    UNKNOWN_FOR_S,
    above,
    chassis_of,
    judge_health,
    judge_node,
    measure,
    merged,
    missing,
    no_bmc,
    unreadable,
)
from agent.checks.redfish_tree import Document, Service, in_use, number, objects, part, text
from agent.checks.registry import Limits, check
from agent.errors import ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_ROOM = advice.person(
    "Check the room's air flow in front of this rack: blanking panels, cold aisle, air handlers, filters."
)
_FAN = advice.reseat("Replace the fan that the BMC names.")
COLDEST_C, HOTTEST_C = -40.0, 100.0


@dataclass(slots=True)
class _Air:
    intake_c: list[float] = field(default_factory=list)
    fans: int = 0
    remarks: list[Finding] = field(default_factory=list)


@check(
    "bmc.air",
    title="Air inlet and fans",
    source="Redfish Chassis/*/ThermalSubsystem: ThermalMetrics, Fans; older: Chassis/*/Thermal",
    serving_class=ServingClass.SOFT,
    period_s=PERIOD_S,
    deadline_s=DEADLINE_S,
    fail_for_s=FAIL_FOR_S,
    clear_for_s=CLEAR_FOR_S,
    unknown_for_s=UNKNOWN_FOR_S,
    unknown_blocks_admission=False,
    skip=no_bmc,
    action=_ROOM,
)
def bmc_air(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Air at the inlet below the profile's limit, if it has one; no fan may have failed."""
    yield judge_node(sources, profile, lambda service: _judge(service, profile))


def _judge(service: Service, profile: NodeProfile) -> Finding:
    chassis = chassis_of(service)
    air = _Air(remarks=unreadable(NODE, chassis.broken))
    for each in chassis:
        _read(service, each, air)
    most = profile.bmc.cooling.air_inlet_max_c
    if most is not None:
        key = "bmc.cooling.air_inlet_max_c"
        if air.intake_c:
            limit = (most, Basis.profile(key))
            air.remarks += above(NODE, "air at the inlet", max(air.intake_c), limit, "C", _ROOM)
        else:
            air.remarks.append(missing(NODE, "air temperature at the inlet", key))
    return merged(air.remarks, _passed(air, most))


def _passed(air: _Air, most: float | None) -> Finding:
    warmest = max(air.intake_c, default=None)
    if not air.fans and warmest is None:
        told = "the BMC shows no fans and no air inlet, and the profile asks for no number"
        return Finding(NODE, Verdict.SKIP, told)
    parts = [f"{air.fans} fans well"] if air.fans else []
    parts += [f"inlet {warmest:g} C"] if warmest is not None else []
    basis = Basis.standard("Redfish Status.Health")
    if most is not None:
        basis = Basis.profile("bmc.cooling.air_inlet_max_c")
    measures = measure("air_inlet_celsius", warmest)
    return Finding(NODE, Verdict.PASS, ", ".join(parts), warmest, most, "C", measures=measures, basis=basis)


def _read(service: Service, chassis: Document, air: _Air) -> None:
    """One chassis: the newer resources if it has them, else the older one."""
    thermal = service.offered(chassis, "ThermalSubsystem")
    fans_before, intakes_before = air.fans, len(air.intake_c)
    if thermal is not None:
        members = service.members(thermal, "Fans", expand=True)
        air.remarks += unreadable(NODE, members.broken)
        _judge_fans([*members], objects(thermal, "FanRedundancy"), air)
        metrics = service.offered(thermal, "ThermalMetrics")
        if metrics is not None:
            air.intake_c += _of_metrics(metrics)
    if air.fans == fans_before and len(air.intake_c) == intakes_before:
        older = service.offered(chassis, "Thermal")
        if older is not None:
            _judge_fans(objects(older, "Fans"), objects(older, "Redundancy"), air)
            air.intake_c += _intakes(objects(older, "Temperatures"), "ReadingCelsius")


def _judge_fans(fans: list[Document], groups: list[Document], air: _Air) -> None:
    air.fans += sum(in_use(fan) for fan in fans)
    for fan in fans:
        air.remarks += judge_health(NODE, "fan", fan, _FAN)
    for group in groups:
        air.remarks += judge_health(NODE, "fan redundancy", group, _FAN, silent=Verdict.PASS)


def _of_metrics(metrics: Document) -> list[float]:
    summary = number(part(metrics, "TemperatureSummaryCelsius"), "Intake")
    found = _intakes(objects(metrics, "TemperatureReadingsCelsius"), "Reading")
    return [_plausible(summary), *found] if summary is not None else found


def _intakes(readings: list[Document], key: str) -> list[float]:
    found = []
    for each in readings:
        value = number(each, key)
        if value is not None and in_use(each) and text(each, "PhysicalContext") == "Intake":
            found.append(_plausible(value))
    return found


def _plausible(value: float) -> float:
    if not COLDEST_C <= value <= HOTTEST_C:
        raise ParseError(f"air at the inlet reads {value:g} C, which no sensor shows")
    return value
