"""host.iommu: is the IOMMU as the profile says, for the GPUs and NICs? /sys/kernel/iommu_groups

The type of a device's group is `identity` (passthrough) or `DMA`, `DMA-FQ` (translated): what the kernel
arguments have led to for this very device. https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-kernel-iommu_groups
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.pci_parts import DEVICES, has_parts, judge_parts, pci_parts
from agent.checks.registry import Limits, check
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

GROUPS = "sys/kernel/iommu_groups"
_TYPES = {"pt": frozenset({"identity"}), "on": frozenset({"DMA", "DMA-FQ"})}
_WORDS = {"pt": "passthrough (identity)", "on": "translated (DMA)"}
_IOMMU = advice.play(
    "kernel",
    "Set iommu= in the boot loader and the IOMMU switch in the BIOS as the profile says, then reboot.",
)


@check(
    "host.iommu",
    title="IOMMU",
    source="/sys/bus/pci/devices/ADDRESS/iommu_group/type",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.iommu else "the profile does not compare it",
    action=_IOMMU,
)
def host_iommu(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The IOMMU must be off, or pass or translate the traffic of GPUs and NICs, as the profile says."""
    sources = reading_once(sources)
    want = profile.host.iommu or ""
    if want == "off" or not has_parts(profile):
        yield _whole(sources, want)
    else:
        yield from judge_parts(pci_parts(sources, profile), lambda s, at: _judge(sources, s, at, want))


def _whole(sources: Sources, want: str) -> Finding:
    """The node by the groups that exist."""
    sources.tree.names("sys/kernel")  # without it nothing is known
    try:
        groups = sources.tree.names(GROUPS)
    except DeviceAbsent:
        groups = []
    seen = "on" if groups else "off"
    basis = Basis.profile("host.iommu")
    if (want == "off") == bool(groups):
        summary = f"the IOMMU is {seen} ({len(groups)} groups), expected {want}"
        return Finding("node", Verdict.FAIL, summary, seen, want, action=_IOMMU, basis=basis)
    types = {sources.tree.text(f"{GROUPS}/{group}/type") for group in groups}
    wrong = sorted(types - _TYPES.get(want, types))
    if wrong:
        summary = f"IOMMU groups of type {', '.join(wrong)[:80]}, expected {_WORDS[want]}"
        return Finding("node", Verdict.FAIL, summary, wrong[0], want, action=_IOMMU, basis=basis)
    return Finding("node", Verdict.PASS, f"{len(groups)} groups", want, want, basis=basis)


def _judge(sources: Sources, subject: str, address: str, want: str) -> Finding:
    basis = Basis.profile("host.iommu")
    if not sources.tree.exists(f"{DEVICES}/{address}"):
        raise DeviceAbsent(f"/{DEVICES}/{address} is not there")
    try:
        group = sources.tree.link_target(f"{DEVICES}/{address}/iommu_group").rstrip("/").rsplit("/", 1)[-1]
    except DeviceAbsent:
        summary = f"{address} is in no IOMMU group, expected {_WORDS[want]}"
        return Finding(subject, Verdict.FAIL, summary, "off", want, action=_IOMMU, basis=basis)
    if not group.isdigit():
        raise ParseError(f"the IOMMU group of {address} is {group[:40]!r}, not a number")
    seen = sources.tree.text(f"{GROUPS}/{group}/type")
    if not seen:
        raise ParseError(f"the type of IOMMU group {group} is empty")
    if seen not in _TYPES[want]:
        summary = f"the IOMMU group of {address} is of type {seen[:40]}, expected {_WORDS[want]}"
        return Finding(subject, Verdict.FAIL, summary, seen[:40], want, action=_IOMMU, basis=basis)
    return Finding(subject, Verdict.PASS, f"group type {seen}", seen, want, basis=basis)
