"""pci.aspm, pci.acs: does PCIe save power, or send peer-to-peer traffic through the root complex?

/sys/module/pcie_aspm/parameters/policy and link/l1_aspm of a device (Documentation/ABI/.../sysfs-bus-pci);
ACS control of the ports above it (include/uapi/linux/pci_regs.h). Leaving a power-saving state costs
microseconds at each message; a port that redirects requests (ACS) halves what GPU and NIC say to each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.host_text import chosen, listed
from agent.checks.pci_config import acs_control, aspm_control
from agent.checks.pci_parts import DEVICES, has_parts, judge_parts, pci_parts, ports_above
from agent.checks.registry import Limits, check, unknown
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, NotSupported, ParseError, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

POLICY = "sys/module/pcie_aspm/parameters/policy"
_PERFORMANCE = "performance"
_ASPM = advice.play(
    "kernel",
    f"Write the policy to /{POLICY} and pcie_aspm.policy= into the boot loader; switch ASPM off in the BIOS.",
)
_ACS = advice.play(
    "kernel", "Clear ACS on these ports with setpci (ECAP_ACS+6.w=0000) at each boot, or in the BIOS."
)
#: PCI_ACS_RR, PCI_ACS_CR, PCI_ACS_EC: what pci=disable_acs_redir clears.
_REDIRECTS = {0x04: "requests", 0x08: "completions", 0x20: "egress control"}


@check(
    "pci.aspm",
    title="PCIe power saving",
    source=f"/{POLICY}, /sys/bus/pci/devices/ADDRESS/link/l1_aspm",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    unknown_blocks_admission=False,  # a kernel that leaves ASPM to the BIOS shows it to root alone
    skip=lambda p: None if p.host.aspm else "the profile does not compare it",
    action=_ASPM,
)
def pci_aspm(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The kernel's policy must be the profile's; under `performance` no GPU or NIC may use L0s or L1."""
    sources = reading_once(sources)
    try:
        yield _policy(sources, profile)
    except SourceError as cause:
        yield unknown("node", cause)
    if profile.host.aspm == _PERFORMANCE:
        yield from judge_parts(pci_parts(sources, profile), lambda s, at: _link(sources, s, at))


def _policy(sources: Sources, profile: NodeProfile) -> Finding:
    seen, want = chosen(sources.tree.text(POLICY), POLICY), profile.host.aspm
    basis = Basis.profile("host.aspm")
    if seen != want:
        summary = f"the PCIe power saving policy is {seen}, expected {want}"
        return Finding("node", Verdict.FAIL, summary, seen, want, action=_ASPM, basis=basis)
    return Finding("node", Verdict.PASS, f"policy {seen}", seen, want, basis=basis)


def _link(sources: Sources, subject: str, address: str) -> Finding:
    basis = Basis.profile("host.aspm")
    states = _states(sources, address)
    if states:
        summary = f"PCIe power saving is on for {address}: {states}"
        return Finding(subject, Verdict.FAIL, summary, states, "off", action=_ASPM, basis=basis)
    return Finding(subject, Verdict.PASS, "no PCIe power saving", "off", "off", basis=basis)


def _states(sources: Sources, address: str) -> str:
    """Power-saving states that the device's link may use: empty, `L1`, `L0s` or both."""
    path = f"{DEVICES}/{address}/link/l1_aspm"
    try:
        value = sources.tree.integer(path)
    except DeviceAbsent:  # the kernel does not manage this link: what the BIOS has set is in the device
        bits = aspm_control(sources.tree.data(f"{DEVICES}/{address}/config"))
        return " and ".join(name for bit, name in ((1, "L0s"), (2, "L1")) if bits & bit)
    if value not in (0, 1):
        raise ParseError(f"/{path} reads {value}, not 0 or 1")
    return "L1" if value else ""


def _no_acs(profile: NodeProfile) -> str | None:
    if profile.host.acs is None:
        return "the profile does not compare it"
    return None if has_parts(profile) else "the profile has neither GPUs nor data ports on PCI"


@check(
    "pci.acs",
    title="PCIe access control off",
    source="/sys/bus/pci/devices/PORT/config: ACS control of each port above a GPU or NIC",
    serving_class=ServingClass.INFO,
    period_s=120.0,
    deadline_s=15.0,
    fail_for_s=120.0,
    unknown_blocks_admission=False,  # only root may read so far into the configuration space
    skip=_no_acs,
    action=_ACS,
)
def pci_acs(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No PCIe port above a GPU or NIC may redirect peer-to-peer traffic to the root complex."""
    sources = reading_once(sources)
    known: dict[str, int] = {}
    yield from judge_parts(pci_parts(sources, profile), lambda s, at: _judge_acs(sources, s, at, known))


def _judge_acs(sources: Sources, subject: str, address: str, known: dict[str, int]) -> Finding:
    basis = Basis.profile("host.acs")
    ports = ports_above(sources, address)
    wrong = [f"{port} ({words})" for port in ports if (words := _redirected(_acs(sources, port, known)))]
    if wrong:
        summary = f"ACS redirects on the way to {address}: {listed(wrong, 2)}"
        return Finding(subject, Verdict.FAIL, summary, listed(wrong, 2), "off", action=_ACS, basis=basis)
    return Finding(subject, Verdict.PASS, "no port redirects", "off", "off", basis=basis)


def _acs(sources: Sources, port: str, known: dict[str, int]) -> int:
    """ACS control of a port, read once a run; 0 for a port that has no ACS."""
    if port not in known:
        try:
            known[port] = acs_control(sources.tree.data(f"{DEVICES}/{port}/config"))
        except NotSupported:
            known[port] = 0
    return known[port]


def _redirected(control: int) -> str:
    return ", ".join(name for bit, name in _REDIRECTS.items() if control & bit)
