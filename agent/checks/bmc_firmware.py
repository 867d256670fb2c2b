"""bmc.firmware: is every firmware that the profile names new enough, or of the version of its image?

Redfish: /redfish/v1/UpdateService/FirmwareInventory/ID: Version (SoftwareInventory schema). Firmware that was
written and not yet activated still shows its running version here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

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
from agent.checks.bmc_versions import at_least
from agent.checks.redfish_tree import ROOT, Service, said, text
from agent.checks.registry import Limits, check
from agent.errors import SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

INVENTORY = f"{ROOT}/UpdateService/FirmwareInventory"
_UPDATE = advice.play(
    "firmware",
    "Drain the node and run site.yml --tags firmware: it updates this firmware and activates it.",
)
_NEWER = advice.play(
    "firmware",
    "Correct the profile, or go back: site.yml --tags firmware -e firmware_allow_downgrade=true.",
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One version that the profile asks for; `exact` = no other one will do."""

    key: str
    pattern: str
    version: str
    exact: bool = False

    def is_met(self, version: str) -> bool:
        """Whether a version will do. Raises ParseError if the two cannot be compared."""
        if version.strip() == self.version.strip():
            return True
        enough = at_least(version, self.version)
        return enough and (not self.exact or at_least(self.version, version))


def _wanted(profile: NodeProfile) -> list[_Wanted]:
    found = [_Wanted(f"bmc.firmware.{id_}", id_, least) for id_, least in profile.bmc.firmware.items()]
    for name, image in profile.bmc.images.items():
        for id_, version in image.versions.items():
            key = f"bmc.images.{name}.versions.{id_}"
            found.append(_Wanted(key, id_, version, image.match == "exact"))
    return found


def _nothing_asked(profile: NodeProfile) -> str | None:
    return no_bmc(profile) or (None if _wanted(profile) else "the profile asks for no firmware version")


@check(
    "bmc.firmware",
    title="Firmware versions by the BMC",
    source="Redfish UpdateService/FirmwareInventory/*: Version",
    serving_class=ServingClass.INFO,
    period_s=PERIOD_S,
    deadline_s=DEADLINE_S,
    fail_for_s=FAIL_FOR_S,
    clear_for_s=CLEAR_FOR_S,
    unknown_for_s=UNKNOWN_FOR_S,
    unknown_blocks_admission=False,
    skip=_nothing_asked,
    action=_UPDATE,
)
def bmc_firmware(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each inventory id that a pattern of the profile matches must run the version asked for."""
    yield judge_node(sources, profile, lambda service: _judge(service, profile))


def _judge(service: Service, profile: NodeProfile) -> Finding:
    links = {path.rstrip("/").rpartition("/")[2]: path for path in service.member_links(INVENTORY)}
    remarks: list[Finding] = []
    seen: set[str] = set()
    wanted = _wanted(profile)
    for each in wanted:
        ids = sorted(id_ for id_ in links if fnmatchcase(id_, each.pattern))
        seen |= {*ids}
        if not ids:
            remarks.append(_absent(each, len(links)))
        remarks += [_judge_one(service, links[id_], id_, each) for id_ in ids]
    summary = f"{len(seen)} firmware versions are as the profile asks"
    basis = Basis.profile(wanted[0].key)
    return merged(remarks, Finding(NODE, Verdict.PASS, summary, len(seen), basis=basis))


def _absent(want: _Wanted, known: int) -> Finding:
    summary = f"no firmware in the BMC's inventory of {known} is named {want.pattern}"
    action = advice.person(
        "Look whether the part is there; if the BMC names it otherwise, correct the profile."
    )
    basis = Basis.profile(want.key)
    return Finding(NODE, Verdict.FAIL, summary, "absent", want.version, action=action, basis=basis)


def _judge_one(service: Service, path: str, id_: str, want: _Wanted) -> Finding:
    try:
        version = text(service.document(path), "Version")
        if not version or not version.strip():
            return Finding(NODE, Verdict.UNKNOWN, f"{said(id_)} gives no version")
        met = want.is_met(version)
        newer = not met and at_least(version, want.version)
    except SourceError as cause:
        return Finding(NODE, Verdict.UNKNOWN, f"{said(id_)}: {cause}")
    basis = Basis.profile(want.key)
    seen = said(version)
    if met:
        return Finding(NODE, Verdict.PASS, f"{said(id_)} {seen}", seen, want.version, basis=basis)
    action = _NEWER if newer else _UPDATE
    summary = f"{said(id_)} is {seen}, {'newer' if newer else 'older'} than {want.version}"
    return Finding(NODE, Verdict.FAIL, summary, seen, want.version, action=action, basis=basis)
