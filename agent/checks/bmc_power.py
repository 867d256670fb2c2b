"""bmc.power: do all power supplies work and get their input, how much does the node draw, are its PDUs well?

Redfish: Chassis/*/PowerSubsystem (PowerSupplies: Status, LineInputStatus; PowerSupplyRedundancy),
EnvironmentMetrics (PowerWatts); older: Chassis/*/Power (PowerSupplies, Redundancy, PowerControl). A PDU's own
service: PowerEquipment/RackPDUs/*: Status, Mains, Branches. Racks share PDUs: nothing here closes a gate.
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
    judge_service,
    measure,
    merged,
    missing,
    no_bmc,
    unreadable,
)
from agent.checks.redfish_tree import (
    NOT_IN_USE,
    ROOT,
    Document,
    Service,
    health,
    in_use,
    link,
    name_of,
    number,
    objects,
    text,
)
from agent.checks.registry import Limits, check
from agent.errors import ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_SUPPLY = advice.reseat("Check the feed and cord of this power supply; replace it if its input is there.")
_DRAW = advice.person("Check the power limits of the GPUs and what else the node draws, before the PDU does.")
_PDU = advice.person("Call who runs the power of this rack: a PDU that alarms makes nodes throttle.")
_INPUT = Basis.standard("Redfish PowerSupply.LineInputStatus")
_INPUT_VERDICTS = {"LossOfInput": Verdict.FAIL, "OutOfRange": Verdict.WARN}
#: More than any node draws; a larger number is no reading.
MOST_W = 1e6


@dataclass(slots=True)
class _Power:
    supplies: int = 0
    draw_w: list[float] = field(default_factory=list)
    remarks: list[Finding] = field(default_factory=list)


def _nothing_to_ask(profile: NodeProfile) -> str | None:
    return None if profile.bmc.pdus else no_bmc(profile)


@check(
    "bmc.power",
    title="Power supplies, draw and PDUs",
    source="Redfish Chassis/*/PowerSubsystem, EnvironmentMetrics; older: Chassis/*/Power; RackPDUs of PDUs",
    serving_class=ServingClass.SOFT,
    period_s=PERIOD_S,
    deadline_s=DEADLINE_S,
    fail_for_s=FAIL_FOR_S,
    clear_for_s=CLEAR_FOR_S,
    unknown_for_s=UNKNOWN_FOR_S,
    unknown_blocks_admission=False,
    skip=_nothing_to_ask,
    action=_SUPPLY,
)
def bmc_power(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No supply may have failed or lost its input, the draw must stay below the profile's limit."""
    if profile.bmc.redfish is not None:
        yield judge_node(sources, profile, lambda service: _judge(service, profile))
    for name, endpoint in profile.bmc.pdus.items():
        yield judge_service(sources, name, endpoint, f"pdu:{name}", _judge_pdu)


def _judge(service: Service, profile: NodeProfile) -> Finding:
    chassis = chassis_of(service)
    power = _Power(remarks=unreadable(NODE, chassis.broken))
    for each in chassis:
        _read(service, each, power)
    most = profile.bmc.power_max_w
    # A chassis inside another one draws a part of its power: the largest reading is the node's.
    draw_w = max(power.draw_w, default=None)
    if most is not None:
        key = "bmc.power_max_w"
        if draw_w is None:
            power.remarks.append(missing(NODE, "power draw", key))
        else:
            power.remarks += above(NODE, "the node draws", draw_w, (most, Basis.profile(key)), "W", _DRAW)
    return merged(power.remarks, _passed(power, draw_w, most))


def _passed(power: _Power, draw_w: float | None, most: float | None) -> Finding:
    if not power.supplies and draw_w is None:
        told = "the BMC shows no power supplies and no draw, and the profile asks for no number"
        return Finding(NODE, Verdict.SKIP, told)
    parts = [f"{power.supplies} power supplies well"] if power.supplies else []
    parts += [f"{draw_w:g} W"] if draw_w is not None else []
    basis = Basis.standard("Redfish Status.Health") if most is None else Basis.profile("bmc.power_max_w")
    measures = measure("node_power_draw_watts", draw_w)
    return Finding(NODE, Verdict.PASS, ", ".join(parts), draw_w, most, "W", measures=measures, basis=basis)


def _read(service: Service, chassis: Document, power: _Power) -> None:
    """One chassis: the newer resources if it has them, else the older one."""
    subsystem = service.offered(chassis, "PowerSubsystem")
    metrics = service.offered(chassis, "EnvironmentMetrics")
    supplies, draws = power.supplies, len(power.draw_w)
    if subsystem is not None:
        members = service.members(subsystem, "PowerSupplies", expand=True)
        power.remarks += unreadable(NODE, members.broken)
        _judge_supplies([*members], objects(subsystem, "PowerSupplyRedundancy"), power)
    if metrics is not None:
        power.draw_w += _watts(number(metrics, "PowerWatts"))
    if power.supplies > supplies and len(power.draw_w) > draws:
        return
    older = service.offered(chassis, "Power")
    if older is None:
        if subsystem is None and link(chassis, "PowerSubsystem") is not None:
            told = f"chassis {name_of(chassis)} lists a PowerSubsystem that is not there"
            power.remarks.append(Finding(NODE, Verdict.UNKNOWN, told))
        return
    if power.supplies == supplies:
        _judge_supplies(objects(older, "PowerSupplies"), objects(older, "Redundancy"), power)
    if len(power.draw_w) == draws:
        for control in objects(older, "PowerControl")[:1]:
            power.draw_w += _watts(number(control, "PowerConsumedWatts"))


def _judge_supplies(supplies: list[Document], groups: list[Document], power: _Power) -> None:
    for supply in supplies:
        state = text(supply, "Status", "State")
        power.supplies += state not in NOT_IN_USE
        line = text(supply, "LineInputStatus")
        verdict = _INPUT_VERDICTS.get(line or "")
        if verdict is not None and state != "Absent":
            summary = f"power supply {name_of(supply)}: input is {line}"
            power.remarks.append(
                Finding(NODE, verdict, summary, line, "Normal", action=_SUPPLY, basis=_INPUT)
            )
        elif state == "UnavailableOffline" and health(supply) == "Critical":
            power.remarks += judge_health(NODE, "power supply", _as_in_use(supply), _SUPPLY)
        else:
            power.remarks += judge_health(NODE, "power supply", supply, _SUPPLY)
    for group in groups:
        power.remarks += judge_health(NODE, "power redundancy", group, _SUPPLY, silent=Verdict.PASS)


def _as_in_use(supply: Document) -> Document:
    """A supply that went offline because it failed counts as one that should work."""
    return {**supply, "Status": {**supply["Status"], "State": "Enabled"}}


def _watts(value: float | None) -> list[float]:
    if value is not None and not 0 <= value <= MOST_W:
        raise ParseError(f"the power draw reads {value:g} W, which no node draws")
    return [] if value is None else [value]


def _judge_pdu(service: Service) -> Finding:
    """A rack PDU by its own service: its word, and that of its mains and branches."""
    pdus = service.collection(f"{ROOT}/PowerEquipment/RackPDUs")
    used = [pdu for pdu in pdus if in_use(pdu)]
    if not used:
        raise pdus.broken[0] if pdus.broken else ParseError("the service shows no rack PDU")
    remarks = unreadable(service.subject, pdus.broken)
    for pdu in used:
        remarks += judge_health(service.subject, "PDU", pdu, _PDU)
        for key, what in (("Mains", "mains"), ("Branches", "branch")):
            circuits = service.members(pdu, key)
            remarks += unreadable(service.subject, circuits.broken)
            for circuit in circuits:
                remarks += judge_health(service.subject, what, circuit, _PDU, silent=Verdict.PASS)
    basis = Basis.standard("Redfish Status.Health")
    names = ", ".join(name_of(pdu) for pdu in used)
    return merged(
        remarks, Finding(service.subject, Verdict.PASS, f"PDU {names}: OK", "OK", "OK", basis=basis)
    )
