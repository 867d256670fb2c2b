"""Leak detectors of a chassis or a cooling unit, and what each says.

Redfish: LeakDetection (LeakDetectors, LeakDetectorGroups with excerpts), LeakDetector (DetectorState).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.checks.bmc_common import judge_health, unreadable
from agent.checks.redfish_tree import Document, Service, in_use, name_of, objects, said, text
from agent.model import Action, Basis, Finding, ServingClass, Verdict

_BASIS = Basis.standard("Redfish LeakDetector.DetectorState")


@dataclass(frozen=True, slots=True)
class Leaks:
    """How many detectors are in use, and what is wrong with them."""

    detectors: int
    remarks: tuple[Finding, ...]


def judge_leaks(service: Service, owner: Document, action: Action, leak_class: ServingClass | None) -> Leaks:
    """Judge the detectors of a ThermalSubsystem or a CoolingUnit; `leak_class` is that of a leak's FAIL."""
    detection = service.offered(owner, "LeakDetection")
    if detection is None:
        return Leaks(0, ())
    members = service.members(detection, "LeakDetectors", expand=True)
    detectors = [each for each in members if in_use(each)] or list(_of_groups(detection))
    remarks = unreadable(service.subject, members.broken)
    for each in detectors:
        remarks += _judge(service.subject, each, action, leak_class)
    if not detectors:
        remarks += judge_health(service.subject, "leak detection", detection, action, silent=Verdict.PASS)
    return Leaks(len(detectors), tuple(remarks))


def _of_groups(detection: Document) -> Iterator[Document]:
    for group in objects(detection, "LeakDetectorGroups"):
        for each in objects(group, "Detectors"):
            name = text(each, "DeviceName") or text(group, "GroupName") or "in a group"
            yield {"Name": name, **each}


def _judge(
    subject: str, detector: Document, action: Action, leak_class: ServingClass | None
) -> list[Finding]:
    """A detector that is itself not well proves nothing about leaks."""
    state = text(detector, "DetectorState")
    name = f"leak detector {name_of(detector)}"
    if state in ("Critical", "Warning"):
        verdict = Verdict.FAIL if state == "Critical" else Verdict.WARN
        what = "reports a leak" if state == "Critical" else "reports moisture or is close to its limit"
        return [
            Finding(
                subject,
                verdict,
                f"{name} {what} ({state})",
                state,
                "OK",
                action=action,
                serving_class=leak_class if verdict is Verdict.FAIL else None,
                basis=_BASIS,
            )
        ]
    if state != "OK":
        told = "no state" if state is None else said(state, 20)
        return [Finding(subject, Verdict.UNKNOWN, f"{name} gives {told}")]
    own = text(detector, "Status", "Health")
    if own not in (None, "OK"):
        return [Finding(subject, Verdict.UNKNOWN, f"{name} is itself not well ({said(own or '', 20)})")]
    return []
