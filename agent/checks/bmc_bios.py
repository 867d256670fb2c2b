"""bmc.bios: BIOS version and settings against the profile; a name that the BMC lacks is a FAIL by that name.

Redfish: Systems/*: Manufacturer, Model, BiosVersion; Systems/*/Bios: Attributes; the settings object holds
what waits. Intents are turned into attributes by the same maps by which provisioning sets them.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.bios.resolve import IntentError, Machine, Want, asked_intents, resolve
from agent.bmc_profile import Bmc
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
from agent.checks.redfish_tree import ROOT, Document, Service, in_use, part, said, text
from agent.checks.registry import Limits, check
from agent.errors import ParseError, SourceError, SourceUnavailable
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_SET = advice.play("bios", "Drain the node and run site.yml --tags bios for it, which sets this and reboots.")
_REBOOT = advice.play("bios", "Drain and reboot the node: the setting has been made and waits for that.")
_VERSION = advice.person("Drain the node and update its BIOS, or correct bmc.bios_version in the profile.")
_NAME = advice.person(
    "Correct the profile: each vendor, model and BIOS version names its attributes; bmc.bios takes any."
)


def _nothing_asked(profile: NodeProfile) -> str | None:
    asked = profile.bmc.bios_version or profile.bmc.bios or asked_intents(profile.bmc)
    return no_bmc(profile) or (None if asked else "the profile asks for no BIOS version and no setting")


@check(
    "bmc.bios",
    title="BIOS version and settings",
    source="Redfish Systems/*: Manufacturer, Model, BiosVersion; Systems/*/Bios: Attributes",
    serving_class=ServingClass.INFO,
    period_s=PERIOD_S,
    deadline_s=DEADLINE_S,
    fail_for_s=FAIL_FOR_S,
    clear_for_s=CLEAR_FOR_S,
    unknown_for_s=UNKNOWN_FOR_S,
    unknown_blocks_admission=False,
    skip=_nothing_asked,
    action=_SET,
)
def bmc_bios(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """What the BIOS runs with, not what is set for the next boot, must be what the profile asks for."""
    yield judge_node(sources, profile, lambda service: _judge(service, profile))


def _judge(service: Service, profile: NodeProfile) -> Finding:
    listed = service.collection(f"{ROOT}/Systems")
    systems = [system for system in listed if in_use(system)]
    if not systems:
        raise listed.broken[0] if listed.broken else ParseError("the BMC shows no system")
    remarks: list[Finding] = []
    if profile.bmc.bios_version is not None:
        remarks += _judge_version(systems, profile.bmc.bios_version)
    count = 0
    if profile.bmc.bios or asked_intents(profile.bmc):
        found, count = _judge_settings(service, systems, profile.bmc)
        remarks += found
    what = f"{count} settings" if count else f"version {profile.bmc.bios_version}"
    basis = Basis.profile("bmc.bios" if count else "bmc.bios_version")
    return merged(remarks, Finding(NODE, Verdict.PASS, f"BIOS has the {what} of the profile", basis=basis))


def _judge_version(systems: list[Document], want: str) -> list[Finding]:
    versions = [version for system in systems if (version := text(system, "BiosVersion"))]
    if not versions:
        return [Finding(NODE, Verdict.UNKNOWN, "no system gives a BiosVersion")]
    seen = said(versions[0])
    if versions[0].strip() == want:
        return []
    basis = Basis.profile("bmc.bios_version")
    summary = f"BIOS version is {seen}, expected {want}"
    return [Finding(NODE, Verdict.FAIL, summary, seen, want, action=_VERSION, basis=basis)]


def _judge_settings(service: Service, systems: list[Document], bmc: Bmc) -> tuple[list[Finding], int]:
    """What is wrong with the settings, and how many there are."""
    system, bios = _bios_of(service, systems)
    attributes = part(bios, "Attributes")
    if not attributes:
        raise SourceUnavailable("the BMC shows no BIOS attributes")
    machine = _machine(system) if asked_intents(bmc) else None
    resolved = resolve(bmc, machine, attributes)
    found = [_unresolved(fault, bmc) for fault in resolved.faults]
    for want in resolved.wants:
        if attributes[want.name] is None:
            found.append(Finding(NODE, Verdict.UNKNOWN, f"{want.name} has no value"))
        elif not want.met(attributes[want.name]):
            found.append(_differs(service, bios, want))
    return found, len(resolved.wants)


def _bios_of(service: Service, systems: list[Document]) -> tuple[Document, Document]:
    """The first system with a BIOS, and its BIOS; a baseboard that is listed as a system has none."""
    for system in systems:
        bios = service.follow(system, "Bios")
        if bios is not None:
            return system, bios
    raise SourceUnavailable("no system of the BMC has a Bios document")


def _machine(system: Document) -> Machine:
    """What the maps go by. Raises ParseError: without it an intent means nothing."""
    told = {key: text(system, key) for key in ("Manufacturer", "Model", "BiosVersion")}
    for key, value in told.items():
        if not value or not value.strip():
            raise ParseError(f"the BMC gives no {key} of the system, by which BIOS intents are understood")
    return Machine(*(str(value) for value in told.values()))


def _unresolved(fault: IntentError, bmc: Bmc) -> Finding:
    """What the profile asks for and this BIOS cannot be asked for by that name."""
    key = fault.where or "bmc.bios"
    name = key.removeprefix("bmc.bios.")
    value = bmc.bios.get(name, asked_intents(bmc).get(key.removeprefix("bmc.bios_intent."), "set"))
    summary = fault.problem if name in bmc.bios else f"{key}: {fault.problem}"
    return Finding(NODE, Verdict.FAIL, summary, "absent", value, action=_NAME, basis=Basis.profile(key))


def _differs(service: Service, bios: Document, want: Want) -> Finding:
    seen, value = part(bios, "Attributes")[want.name], want.values[0]
    observed = seen if isinstance(seen, bool | int | float) else said(str(seen))
    waits = _waits(service, bios, want)
    note = " (set, waits for a reboot)" if waits else ""
    summary = f"{want.name} is {observed}, expected {value}{note}"
    action = _REBOOT if waits else _SET
    return Finding(
        NODE, Verdict.FAIL, summary, observed, value, action=action, basis=Basis.profile(want.field)
    )


def _waits(service: Service, bios: Document, want: Want) -> bool:
    """Whether the wanted value is in the settings for the next boot."""
    try:
        pending = service.follow(bios, "@Redfish.Settings", "SettingsObject")
        attributes = part(pending, "Attributes") if pending is not None else {}
    except SourceError:
        return False  # only the advice depends on it
    return want.name in attributes and want.met(attributes[want.name])
