"""Where coolant is measured: connectors of a chassis or a cooling unit, else sensors that say what they are.

Redfish: CoolantConnector (SupplyTemperatureCelsius, ReturnTemperatureCelsius, DeltaTemperatureCelsius,
FlowLitersPerMinute); Sensor (ReadingType, PhysicalContext LiquidInlet and LiquidOutlet); older: Thermal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from agent.checks.bmc_common import chassis_of
from agent.checks.redfish_tree import (
    Document,
    Members,
    Service,
    in_use,
    name_of,
    number,
    objects,
    text,
)
from agent.errors import ParseError, SourceError

#: What coolant can be; anything else is not a reading.
COLDEST_C, HOTTEST_C = -40.0, 150.0
MOST_L_PER_MIN = 1e6
_LITRES_A_MINUTE = {"l/min": 1.0, "lpm": 1.0, "l/m": 1.0, "l/s": 60.0, "m3/h": 1000 / 60, "m^3/h": 1000 / 60}
_COOLANT = re.compile(r"coolant|liquid|water|cdu|cool", re.IGNORECASE)
_INLET = re.compile(r"inlet|supply|intake|(?<![a-z])in(?![a-z])", re.IGNORECASE)
_OUTLET = re.compile(r"outlet|return|(?<![a-z])out(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Loop:
    """Readings at one connector; None = not reported there."""

    name: str
    supply_c: float | None = None
    return_c: float | None = None
    delta_c: float | None = None
    flow_l_per_min: float | None = None
    document: Document | None = None

    def difference_c(self) -> float | None:
        """Outlet minus inlet, as reported or as the two readings give it."""
        if self.delta_c is not None:
            return self.delta_c
        if self.supply_c is None or self.return_c is None:
            return None
        return self.return_c - self.supply_c


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of a service, and why others could not be read."""

    loops: tuple[Loop, ...]
    broken: tuple[SourceError, ...] = ()


def of_connectors(members: Members) -> Loops:
    """Loops of a list of coolant connectors. Raises ParseError for what no coolant can be."""
    return Loops(tuple(_connector(each) for each in members if in_use(each)), members.broken)


def of_node(service: Service) -> Loops:
    """Loops of the node: its chassis' connectors, else what sensors of a chassis say. Raises SourceError."""
    chassis = chassis_of(service)
    loops: list[Loop] = []
    broken = list(chassis.broken)
    for each in chassis:
        thermal = service.offered(each, "ThermalSubsystem")
        if thermal is not None:
            found = of_connectors(service.members(thermal, "CoolantConnectors", expand=True))
            loops += found.loops
            broken += found.broken
    if loops:
        return Loops(tuple(loops), tuple(broken))
    return _of_sensors(service, chassis, broken)


def _connector(document: Document) -> Loop:
    return Loop(
        name_of(document),
        _temperature(number(document, "SupplyTemperatureCelsius")),
        _temperature(number(document, "ReturnTemperatureCelsius")),
        number(document, "DeltaTemperatureCelsius"),
        _flow(number(document, "FlowLitersPerMinute")),
        document,
    )


def _of_sensors(service: Service, chassis: Members, broken: list[SourceError]) -> Loops:
    """One loop a chassis, of its sensors; chassis without any (each GPU may be one) are left out."""
    loops: list[Loop] = []
    for each in chassis:
        loop = Loop(name_of(each))
        thermal = service.offered(each, "Thermal")
        for sensor in objects(thermal, "Temperatures") if thermal is not None else []:
            loop = _with_sensor(loop, sensor)
        if loop == Loop(loop.name):
            sensors = service.members(each, "Sensors", expand=True)
            broken += sensors.broken
            for sensor in sensors:
                loop = _with_sensor(loop, sensor)
        if loop != Loop(loop.name):
            loops.append(loop)
    # A sensor that cannot be read may be about anything: it matters only where nothing else tells.
    return Loops(tuple(loops), () if loops else tuple(broken))


def _with_sensor(loop: Loop, sensor: Document) -> Loop:
    """The loop with one sensor's reading, if it is about coolant: the warmest, and the sum of flows."""
    value = number(sensor, "Reading") if "Reading" in sensor else number(sensor, "ReadingCelsius")
    if value is None or not in_use(sensor):
        return loop
    unit = (text(sensor, "ReadingUnits") or "").lower().replace(" ", "")
    kind = text(sensor, "ReadingType") or ""
    if kind.startswith("LiquidFlow"):
        flow = _flow(value * _factor(kind, unit))
        return replace(loop, flow_l_per_min=(loop.flow_l_per_min or 0.0) + (flow or 0.0))
    if kind not in ("", "Temperature") or (not kind and unit not in ("", "cel", "c")):
        return loop
    place = _place(sensor)
    if place == "inlet":
        return replace(loop, supply_c=_warmest(loop.supply_c, _temperature(value)))
    if place == "outlet":
        return replace(loop, return_c=_warmest(loop.return_c, _temperature(value)))
    return loop


def _factor(kind: str, unit: str) -> float:
    if not unit:
        return 1.0 if kind == "LiquidFlowLPM" else 60.0
    if unit not in _LITRES_A_MINUTE:
        raise ParseError(f"a coolant flow has the unit {unit[:20]!r}")
    return _LITRES_A_MINUTE[unit]


def _place(sensor: Document) -> str | None:
    """Where a temperature sensor sits, by its context, else by its name if that speaks of coolant."""
    context = text(sensor, "PhysicalContext")
    if context in ("LiquidInlet", "LiquidOutlet"):
        return context.removeprefix("Liquid").lower()
    name = " ".join(each for key in ("Id", "Name") if isinstance(each := sensor.get(key), str))
    words = name.replace("_", " ").replace("-", " ")
    if not _COOLANT.search(words):
        return None
    if _INLET.search(words):
        return "inlet"
    return "outlet" if _OUTLET.search(words) else None


def _warmest(known: float | None, value: float | None) -> float | None:
    return value if known is None or value is None else max(known, value)


def _temperature(value: float | None) -> float | None:
    if value is not None and not COLDEST_C <= value <= HOTTEST_C:
        raise ParseError(f"coolant reads {value:g} C, which no sensor shows")
    return value


def _flow(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= MOST_L_PER_MIN:
        raise ParseError(f"coolant flow reads {value:g} L/min, which no sensor shows")
    return value
