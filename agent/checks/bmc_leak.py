"""bmc.leak: does a leak detector inside the node report water? (Those of cooling units: bmc.coolant.)

Redfish: Chassis/*/ThermalSubsystem/LeakDetection and its LeakDetectors: DetectorState.
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
    chassis_of,
    judge_node,
    merged,
    missing,
    no_bmc,
    unreadable,
)
from agent.checks.bmc_leaks import judge_leaks
from agent.checks.redfish_tree import Service
from agent.checks.registry import ClearedBy, Limits, check
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_LEAK = advice.reseat(
    "Drain the node, power it off and close its coolant valves; find the leak before power comes back on, "
    "then say nodegate gate clear."
)


@check(
    "bmc.leak",
    title="Leak detectors of the node",
    source="Redfish Chassis/*/ThermalSubsystem/LeakDetection: LeakDetectors/*: DetectorState",
    # Missing evidence must degrade nothing: only the finding of a leak itself is hard.
    serving_class=ServingClass.SOFT,
    period_s=PERIOD_S,
    deadline_s=DEADLINE_S,
    fail_for_s=FAIL_FOR_S,
    clear_for_s=CLEAR_FOR_S,
    unknown_for_s=UNKNOWN_FOR_S,
    unknown_blocks_admission=False,
    sticky=True,
    # A puddle that dries is no repair, and a reboot is none either; but state does not outlive a boot.
    clears=(ClearedBy.REBOOT, ClearedBy.OPERATOR),
    skip=no_bmc,
    action=_LEAK,
)
def bmc_leak(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No detector of the node may report a leak; a confirmed one stays until an operator clears it."""
    yield judge_node(sources, profile, lambda service: _judge(service, profile))


def _judge(service: Service, profile: NodeProfile) -> Finding:
    chassis = chassis_of(service)
    remarks = unreadable(NODE, chassis.broken)
    count = 0
    for each in chassis:
        thermal = service.offered(each, "ThermalSubsystem")
        if thermal is not None:
            found = judge_leaks(service, thermal, _LEAK, ServingClass.HARD)
            count += found.detectors
            remarks += found.remarks
    if count == 0 and profile.bmc.cooling.leak_detection:
        remarks.append(missing(NODE, "leak detector", "bmc.cooling.leak_detection"))
    basis = Basis.standard("Redfish LeakDetector.DetectorState")
    passed = Finding(NODE, Verdict.PASS, f"{count} leak detectors are dry", "OK", "OK", basis=basis)
    if count == 0:
        passed = Finding(NODE, Verdict.SKIP, "the BMC shows no leak detectors, and the profile asks for none")
    return merged(remarks, passed)
