"""bmc.bios: BIOS version and settings against the profile; a name that the BMC lacks is a FAIL by that name.

Redfish: Systems/*: BiosVersion; Systems/*/Bios: Attributes; the settings object holds what waits.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

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
from agent.model import Basis, Finding, Scalar, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_SET = advice.person("Drain the node, set this in the BIOS setup or through the BMC, and reboot.")
_REBOOT = advice.person("Drain and reboot the node: the setting has been made and waits for that.")
_VERSION = advice.person("Drain the node and update its BIOS, or correct bmc.bios_version in the profile.")
_NAME = advice.person(
    "Correct the name in the profile: each vendor, model and version names its BIOS attributes."
)


def _nothing_asked(profile: NodeProfile) -> str | None:
    asked = profile.bmc.bios_version or profile.bmc.bios
    return no_bmc(profile) or (None if asked else "the profile asks for no BIOS version and no setting")


@check(
    "bmc.bios",
    title="BIOS version and settings",
    source="Redfish Systems/*: BiosVersion; Systems/*/Bios: Attributes",
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
    if profile.bmc.bios:
        remarks += _judge_settings(service, systems, profile.bmc.bios)
    what = f"{len(profile.bmc.bios)} settings" if profile.bmc.bios else f"version {profile.bmc.bios_version}"
    basis = Basis.profile("bmc.bios" if profile.bmc.bios else "bmc.bios_version")
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


def _judge_settings(
    service: Service, systems: list[Document], want: dict[str, str | int | bool]
) -> list[Finding]:
    bios = _bios_of(service, systems)
    attributes = part(bios, "Attributes")
    if not attributes:
        raise SourceUnavailable("the BMC shows no BIOS attributes")
    found: list[Finding] = []
    for name, value in want.items():
        if name not in attributes:
            found.append(_no_such_name(name, value, attributes))
        elif attributes[name] is None:
            found.append(Finding(NODE, Verdict.UNKNOWN, f"{name} has no value"))
        elif not same(attributes[name], value):
            found.append(_differs(service, bios, name, value))
    return found


def _bios_of(service: Service, systems: list[Document]) -> Document:
    """The first BIOS document; a baseboard that is listed as a system of its own has none."""
    for system in systems:
        bios = service.follow(system, "Bios")
        if bios is not None:
            return bios
    raise SourceUnavailable("no system of the BMC has a Bios document")


def same(seen: Any, want: str | int | bool) -> bool:
    """Whether a value is the wanted one; a number may be written as text, true is no 1."""
    if isinstance(seen, bool) or isinstance(want, bool):
        return str(seen).lower() == str(want).lower()
    return bool(seen == want) or (isinstance(seen, str | int) and str(seen) == str(want))


def _no_such_name(name: str, value: Scalar, attributes: Document) -> Finding:
    near = difflib.get_close_matches(name, list(attributes)[:2000], 1, 0.6)
    hint = f"; near: {said(near[0])}" if near else ""
    summary = f"the BIOS has no attribute {name}{hint}"
    basis = Basis.profile(f"bmc.bios.{name}")
    return Finding(NODE, Verdict.FAIL, summary, "absent", value, action=_NAME, basis=basis)


def _differs(service: Service, bios: Document, name: str, value: str | int | bool) -> Finding:
    seen = part(bios, "Attributes")[name]
    observed = seen if isinstance(seen, bool | int | float) else said(str(seen))
    waits = _waits(service, bios, name, value)
    note = " (set, waits for a reboot)" if waits else ""
    summary = f"{name} is {observed}, expected {value}{note}"
    basis = Basis.profile(f"bmc.bios.{name}")
    action = _REBOOT if waits else _SET
    return Finding(NODE, Verdict.FAIL, summary, observed, value, action=action, basis=basis)


def _waits(service: Service, bios: Document, name: str, value: str | int | bool) -> bool:
    """Whether the wanted value is in the settings for the next boot."""
    try:
        pending = service.follow(bios, "@Redfish.Settings", "SettingsObject")
        attributes = part(pending, "Attributes") if pending is not None else {}
    except SourceError:
        return False  # only the advice depends on it
    return name in attributes and same(attributes[name], value)
