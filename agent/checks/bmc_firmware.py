"""bmc.firmware: is every firmware that the profile names new enough (NVSwitch, GPU, ERoT, BMC, CPLD)?

Redfish: /redfish/v1/UpdateService/FirmwareInventory/ID: Version (SoftwareInventory schema). Firmware that was
written and not yet activated still shows its running version here.
"""

from __future__ import annotations

from collections.abc import Iterator
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
_UPDATE = advice.person(
    "Drain the node, update this firmware through the BMC and power-cycle the node so that it takes effect."
)


def _nothing_asked(profile: NodeProfile) -> str | None:
    return no_bmc(profile) or (None if profile.bmc.firmware else "the profile asks for no firmware version")


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
    """Each inventory id that a pattern of the profile matches must have at least its version."""
    yield judge_node(sources, profile, lambda service: _judge(service, profile))


def _judge(service: Service, profile: NodeProfile) -> Finding:
    links = {path.rstrip("/").rpartition("/")[2]: path for path in service.member_links(INVENTORY)}
    remarks: list[Finding] = []
    count = 0
    for pattern, minimum in profile.bmc.firmware.items():
        ids = sorted(id_ for id_ in links if fnmatchcase(id_, pattern))
        count += len(ids)
        if not ids:
            remarks.append(_absent(pattern, minimum, len(links)))
        remarks += [_judge_one(service, links[id_], id_, pattern, minimum) for id_ in ids]
    summary = f"{count} firmware versions are new enough"
    first = next(iter(profile.bmc.firmware))
    basis = Basis.profile(f"bmc.firmware.{first}")
    return merged(remarks, Finding(NODE, Verdict.PASS, summary, count, basis=basis))


def _absent(pattern: str, minimum: str, known: int) -> Finding:
    summary = f"no firmware in the BMC's inventory of {known} is named {pattern}"
    action = advice.person(
        "Look whether the part is there; if the BMC names it otherwise, correct the profile."
    )
    basis = Basis.profile(f"bmc.firmware.{pattern}")
    return Finding(NODE, Verdict.FAIL, summary, "absent", minimum, action=action, basis=basis)


def _judge_one(service: Service, path: str, id_: str, pattern: str, minimum: str) -> Finding:
    try:
        version = text(service.document(path), "Version")
        if not version or not version.strip():
            return Finding(NODE, Verdict.UNKNOWN, f"{said(id_)} gives no version")
        enough = at_least(version, minimum)
    except SourceError as cause:
        return Finding(NODE, Verdict.UNKNOWN, f"{said(id_)}: {cause}")
    basis = Basis.profile(f"bmc.firmware.{pattern}")
    seen = said(version)
    if enough:
        return Finding(NODE, Verdict.PASS, f"{said(id_)} {seen}", seen, minimum, basis=basis)
    summary = f"{said(id_)} is {seen}, older than {minimum}"
    return Finding(NODE, Verdict.FAIL, summary, seen, minimum, action=_UPDATE, basis=basis)
