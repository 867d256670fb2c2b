"""nic.max_read_request: does a NIC ask for as much at once as the profile says?

Kernel: /sys/bus/pci/devices/ADDRESS/config, Device Control of the PCIe capability. Without CAP_SYS_ADMIN the
kernel shows its first 64 bytes only, and the capability lies behind them.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.pci_config import max_read_request_bytes
from agent.checks.ports import PCI_DEVICES, address_of, judge_ports, no_ports, subject_of
from agent.checks.registry import Limits, check
from agent.checks.shared_tree import reading_once
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

_SET = advice.play(
    "nic", "Set MaxReadReq of the card with setpci (CAP_EXP+8.w) or in the BIOS, at every boot."
)


def _not_asked(profile: NodeProfile) -> str | None:
    asked = profile.fabric.nic.max_read_request_bytes is not None
    return no_ports(profile) or (None if asked else "the profile names no MaxReadReq")


@check(
    "nic.max_read_request",
    title="PCIe read request size",
    source="/sys/bus/pci/devices/ADDRESS/config: PCI_EXP_DEVCTL",
    serving_class=ServingClass.SOFT,
    network=True,
    period_s=300.0,
    fail_for_s=300.0,
    unknown_blocks_admission=False,
    skip=_not_asked,
    action=_SET,
)
def nic_max_read_request(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """MaxReadReq of each NIC must be the profile's."""
    sources = reading_once(sources)
    want = profile.fabric.nic.max_read_request_bytes
    assert want is not None
    yield from judge_ports(profile, lambda port: _judge(sources, port, want), absent="see nic.present")


def _judge(sources: Sources, port: NicPort, want: int) -> Finding:
    seen = max_read_request_bytes(sources.tree.data(f"{PCI_DEVICES}/{address_of(sources, port)}/config"))
    subject, basis = subject_of(port), Basis.profile("fabric.nic.max_read_request_bytes")
    if seen != want:
        summary = f"MaxReadReq is {seen} bytes, expected {want}"
        return Finding(subject, Verdict.FAIL, summary, seen, want, "bytes", _SET, basis=basis)
    return Finding(subject, Verdict.PASS, f"MaxReadReq is {seen} bytes", seen, want, "bytes", basis=basis)
