"""nvswitch.present: does the host see the NVSwitches that the profile has?

Kernel: PCI class 0x0680 (bridge, other) of vendor 0x10de under /sys/bus/pci/devices. A guest of a shared
fabric sees none, and the switches of a Blackwell baseboard are no PCI devices of their own: such a profile
leaves nvlink.nvswitches unset.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import no_gpus
from agent.checks.registry import Limits, check, unknown
from agent.errors import DeviceAbsent, SourceError
from agent.model import Action, ActionKind, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

PCI_DEVICES = "sys/bus/pci/devices"
NVIDIA_VENDOR = 0x10DE
CLASS_OTHER_BRIDGE = 0x0680
_LOST = Action(
    ActionKind.REBOOT,
    "Drain and reboot the node; if a switch is still missing, have the baseboard looked at.",
)
_CORRECT = advice.person("Correct nvlink.nvswitches in the profile.")


def _not_compared(profile: NodeProfile) -> str | None:
    unset = "nvlink.nvswitches is not set" if profile.nvlink.nvswitches is None else None
    return no_gpus(profile) or unset


@check(
    "nvswitch.present",
    title="NVSwitches on PCI",
    source="/sys/bus/pci/devices/*: class 0x0680 of vendor 0x10de",
    serving_class=ServingClass.HARD,
    period_s=30.0,
    fail_for_s=30.0,
    triggers=("kmsg.pcie", "kmsg.xid"),
    skip=_not_compared,
    action=_LOST,
)
def nvswitch_present(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The PCI bus must show the profile's number of NVSwitches."""
    want = profile.nvlink.nvswitches or 0
    try:
        devices = sources.tree.names(PCI_DEVICES)
        found = [address for address in devices if _is_switch(sources, f"{PCI_DEVICES}/{address}")]
    except SourceError as cause:
        yield unknown("node", cause)
        return
    basis, at = Basis.profile("nvlink.nvswitches"), f": {', '.join(found)}" if found else ""
    if len(found) < want:
        text = f"{len(found)} of {want} NVSwitches on PCI{at}"
        yield Finding("node", Verdict.FAIL, text, len(found), want, "switches", _LOST, basis=basis)
    elif len(found) > want:
        text = f"{len(found)} NVSwitches on PCI, the profile has {want}"
        yield Finding("node", Verdict.WARN, text, len(found), want, "switches", _CORRECT, basis=basis)
    else:
        yield Finding("node", Verdict.PASS, f"{want} NVSwitches{at}", want, want, "switches", basis=basis)


def _is_switch(sources: Sources, path: str) -> bool:
    try:
        vendor = sources.tree.integer(f"{path}/vendor")
        return vendor == NVIDIA_VENDOR and sources.tree.integer(f"{path}/class") >> 8 == CLASS_OTHER_BRIDGE
    except DeviceAbsent:
        # Pulled between the listing and this look, or a captured tree that holds only a link of it.
        return False
