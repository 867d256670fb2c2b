"""nic.pcie: does a NIC have the PCIe link that it is meant to have?

Kernel: /sys/bus/pci/devices/ADDRESS/{current,max}_link_{speed,width}, and the line `available PCIe bandwidth,
limited by` of pcie_print_link_status(). A card can do no more than the port above it, so what the
device states is the lesser of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from agent.checks import advice
from agent.checks.pci import normal_address
from agent.checks.ports import PCI_DEVICES, address_of, judge_ports, no_ports, subject_of
from agent.checks.registry import Limits, check
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NicSettings, NodeProfile
from agent.sources import KmsgRecord, Sources

_RESEAT = advice.reseat(
    "Reseat the card, look for a slot with enough lanes, and set the slot's link speed to Auto in the BIOS."
)
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
_LIMITED = re.compile(
    r"(?P<address>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?P<gbps>\d+(?:\.\d+)?) Gb/s available PCIe"
    r" bandwidth, limited by (?P<by>[^(]*)"
)


class PcieLimits(Limits):
    """Tolerances of nic.pcie."""

    ignore_bandwidth_line: bool = Field(
        False, description="Leave out what the kernel said at start of bandwidth limited above the card"
    )


@dataclass(frozen=True, slots=True)
class _Link:
    """Speed and width of a link, each with where the number comes from."""

    speed_gts: float
    width: int
    speed_basis: Basis
    width_basis: Basis

    @property
    def from_profile(self) -> bool:
        return self.speed_basis.kind == self.width_basis.kind == Basis.profile("").kind


@check(
    "nic.pcie",
    title="PCIe link of the NIC",
    source="/sys/bus/pci/devices/ADDRESS/{current,max}_link_{speed,width}; /dev/kmsg",
    serving_class=ServingClass.HARD,
    limits=PcieLimits,
    network=True,
    period_s=30.0,
    fail_for_s=60.0,
    triggers=("kmsg.pcie",),
    skip=no_ports,
    action=_RESEAT,
    if_unreadable=(
        "Without the kernel log (CAP_SYSLOG) `limits: {nic.pcie: {ignore_bandwidth_line: true}}` judges the"
        " link alone; a virtual function shows no link: checks: {nic.pcie: {enabled: false}}."
    ),
)
def nic_pcie(sources: Sources, profile: NodeProfile, limits: PcieLimits) -> Iterator[Finding]:
    """Speed and width of a NIC's PCIe link must be those of the profile, or the most that its slot allows."""
    sources = reading_once(sources)
    yield from judge_ports(
        profile, lambda port: _port(sources, profile, port, limits), absent="see nic.present"
    )


def _port(sources: Sources, profile: NodeProfile, port: NicPort, limits: PcieLimits) -> Finding:
    address, subject = address_of(sources, port), subject_of(port)
    speed_gts = _speed(sources, address, "current")
    width = _width(sources, address, "current")
    want = _wanted(sources, address, profile.fabric.nic)
    line = None if limits.ignore_bandwidth_line else _limited(sources.kmsg.records(), address)
    seen, needed = f"{speed_gts:g} GT/s x{width}", f"{want.speed_gts:g} GT/s x{want.width}"
    if width < want.width or speed_gts < want.speed_gts:
        basis = want.width_basis if width < want.width else want.speed_basis
        summary = f"PCIe link is {seen}, expected {needed}"
        return Finding(subject, Verdict.FAIL, summary, seen, needed, "", _RESEAT, basis=basis)
    if (
        line is not None
        and not want.from_profile
        and float(line["gbps"]) < _needed_gbps(sources, profile, address)
    ):
        by = line["by"].strip()[:80]
        summary = f"the kernel has {line['gbps']} Gb/s of PCIe for this card, limited by {by}"
        rate = _needed_gbps(sources, profile, address)
        basis = Basis.profile("fabric.ports")
        gbps = float(line["gbps"])
        return Finding(subject, Verdict.WARN, summary, gbps, rate, "Gb/s", _RESEAT, basis=basis)
    return Finding(subject, Verdict.PASS, f"PCIe link is {seen}", seen, needed, basis=want.width_basis)


def _wanted(sources: Sources, address: str, settings: NicSettings) -> _Link:
    """The profile's link, and where it says nothing the lesser of what card and port above can do."""
    speed_gts, width = _speed(sources, address, "max"), _width(sources, address, "max")
    upstream = _upstream(sources, address)
    if upstream is not None:
        speed_gts = min(speed_gts, _speed(sources, upstream, "max"))
        width = min(width, _width(sources, upstream, "max"))
    by_profile = settings.pcie_speed_gts is not None, settings.pcie_width is not None
    return _Link(
        settings.pcie_speed_gts or speed_gts,
        settings.pcie_width or width,
        Basis.profile("fabric.nic.pcie_speed_gts") if by_profile[0] else Basis.device("max_link_speed"),
        Basis.profile("fabric.nic.pcie_width") if by_profile[1] else Basis.device("max_link_width"),
    )


def _upstream(sources: Sources, address: str) -> str | None:
    """Address of the port above a device; None at the root or where sysfs does not say."""
    try:
        parts = sources.tree.link_target(f"{PCI_DEVICES}/{address}").rstrip("/").split("/")
    except DeviceAbsent:
        return None
    if len(parts) < 2 or ":" not in parts[-2] or parts[-2].startswith("pci"):
        return None
    return normal_address(parts[-2])


def _speed(sources: Sources, address: str, which: str) -> float:
    path = f"{PCI_DEVICES}/{address}/{which}_link_speed"
    text = sources.tree.text(path)
    match = _SPEED.match(text)
    if match is None:
        raise ParseError(f"/{path} reads {text[:40]!r}, not like '32.0 GT/s PCIe'")
    return float(match[1])


def _width(sources: Sources, address: str, which: str) -> int:
    path = f"{PCI_DEVICES}/{address}/{which}_link_width"
    width = sources.tree.integer(path)
    if width not in _WIDTHS:
        raise ParseError(f"/{path} reads {width}, not a PCIe width")
    return width


def _limited(records: Sequence[KmsgRecord], address: str) -> re.Match[str] | None:
    """The newest line about this card's bandwidth."""
    for record in reversed(records):
        match = _LIMITED.search(record.text)
        if match is not None and match["address"] == address:
            return match
    return None


def _needed_gbps(sources: Sources, profile: NodeProfile, address: str) -> float:
    """Rate of all data ports of this function together."""
    return sum(port.rate_gbps for port in profile.fabric.ports if address_of(sources, port) == address)
