"""nic.serial: is the card of each data port the one that the profile names?

Kernel: /sys/bus/pci/devices/ADDRESS/vpd (PCI vital product data), which root alone may read; a read can take
seconds, so it is done rarely.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.nic_vpd import serial_number
from agent.checks.ports import PCI_DEVICES, address_of, basis_of, no_ports, subject_of
from agent.checks.registry import Limits, check, unknown
from agent.checks.shared_tree import reading_once
from agent.errors import SourceError
from agent.model import Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

_RECORD = advice.person(
    "If the card was changed on purpose, correct serial of its ports in the profile; otherwise put the right"
    " card back."
)


def _not_asked(profile: NodeProfile) -> str | None:
    asked = any(port.serial is not None for port in profile.fabric.ports)
    return no_ports(profile) or (None if asked else "the profile names no serial number of a NIC")


@check(
    "nic.serial",
    title="Serial number of the NIC",
    source="/sys/bus/pci/devices/ADDRESS/vpd",
    serving_class=ServingClass.SOFT,
    network=True,
    period_s=600.0,
    deadline_s=60.0,
    fail_for_s=600.0,
    triggers=("kmsg.pcie",),
    # The kernel shows it to root alone.
    unknown_blocks_admission=False,
    skip=_not_asked,
    action=_RECORD,
)
def nic_serial(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each card whose serial number the profile names must be that card."""
    sources = reading_once(sources)
    for port in profile.fabric.ports:
        if port.serial is not None:
            try:
                yield _judge(sources, profile, port, port.serial)
            except SourceError as cause:
                yield unknown(subject_of(port), cause)


def _judge(sources: Sources, profile: NodeProfile, port: NicPort, want: str) -> Finding:
    seen = card_serial(sources, port)
    basis = basis_of(profile, port, "serial")
    if seen != want:
        summary = f"the card has serial number {seen[:40]}, expected {want}"
        return Finding(subject_of(port), Verdict.FAIL, summary, seen[:40], want, "", _RECORD, basis=basis)
    return Finding(subject_of(port), Verdict.PASS, f"serial number {seen[:40]}", seen[:40], want, basis=basis)


def card_serial(sources: Sources, port: NicPort) -> str:
    """Serial number of a port's card. Raises DeviceAbsent, NotSupported, ParseError, SourceUnavailable."""
    return serial_number(sources.tree.data(f"{PCI_DEVICES}/{address_of(sources, port)}/vpd"))
