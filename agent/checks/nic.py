"""nic.present, nic.port: is every data port of the profile there and up? Other ports are nobody's business.

Kernel: /sys/class/infiniband/DEVICE/ports/N/{state,phys_state,rate,link_layer}
(https://docs.kernel.org/admin-guide/abi-stable.html, sysfs-class-infiniband); RTM_GETLINK for the interface.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.checks import advice
from agent.checks.pci import normal_address
from agent.checks.ports import INFINIBAND, judge_ports, no_ports, port_path, subject_of
from agent.checks.registry import Limits, check
from agent.errors import DeviceAbsent, ParseError
from agent.model import Action, Finding, ServingClass, Verdict
from agent.node_profile import FabricKind, NicPort, NodeProfile
from agent.sources import Sources

_DRIVER = advice.reseat(
    "Look for the NIC with lspci: reseat it if it is not there, else load its driver (mlx5_ib)."
)
_CABLE = advice.person("Check cable, transceiver and switch port of this link.")
_SET_LINK_TYPE = advice.play("nic", "Set LINK_TYPE_P1 of the card with mlxconfig and reboot the node.")
_NAME_INTERFACE = advice.play(
    "nic", "Look for the interface with ip link: load its driver, or correct netdev in the profile."
)
_STATE = re.compile(r"(\d{1,2}):\s*(\S.*)")
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s*Gb/sec\b")
LINK_LAYERS = {FabricKind.ROCE: "Ethernet", FabricKind.IB: "InfiniBand"}
ACTIVE, LINK_UP = 4, 5


@check(
    "nic.present",
    title="RDMA device present",
    source="/sys/class/infiniband/DEVICE/ports/N, /sys/class/infiniband/DEVICE/device",
    serving_class=ServingClass.HARD,
    network=True,
    period_s=10.0,
    fail_for_s=20.0,
    triggers=("kmsg.nic", "kmsg.pcie"),
    skip=no_ports,
    action=_DRIVER,
)
def nic_present(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every data port must exist, at its PCI address where the profile gives one."""
    yield from judge_ports(profile, lambda port: _judge_present(sources, port), absent="cannot be read")


def _judge_present(sources: Sources, port: NicPort) -> Finding:
    subject = subject_of(port)
    try:
        devices = sources.tree.names(INFINIBAND)
    except DeviceAbsent:
        devices = []
    if port.device not in devices:
        summary = f"RDMA device {port.device} is not there ({len(devices)} others are)"
        return Finding(subject, Verdict.FAIL, summary, "absent", "present", action=_DRIVER)
    try:
        numbers = sources.tree.names(f"{INFINIBAND}/{port.device}/ports")
    except DeviceAbsent:
        numbers = []
    if str(port.port) not in numbers:
        summary = f"{port.device} has no port {port.port} (it has {', '.join(numbers) or 'none'})"
        return Finding(subject, Verdict.FAIL, summary, "absent", "present", action=_DRIVER)
    if port.pci_bus_id is None:
        return Finding(subject, Verdict.PASS, "present", "present", "present")
    target = sources.tree.link_target(f"{INFINIBAND}/{port.device}/device")
    seen, want = normal_address(target.rstrip("/").rsplit("/", 1)[-1]), normal_address(port.pci_bus_id)
    if seen != want:
        summary = f"{port.device} is at {seen}, expected {want}: the name belongs to another card now"
        return Finding(subject, Verdict.FAIL, summary, seen, want, action=_DRIVER)
    return Finding(subject, Verdict.PASS, f"present at {seen}", seen, want)


@check(
    "nic.port",
    title="Data port up",
    source="/sys/class/infiniband/DEVICE/ports/N/{state,phys_state,rate,link_layer}; RTM_GETLINK",
    serving_class=ServingClass.HARD,
    network=True,
    period_s=5.0,
    fail_for_s=25.0,
    triggers=("net.link", "kmsg.nic"),
    skip=no_ports,
    action=_CABLE,
)
def nic_port(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every data port must be active at its rate, with its interface up at its MTU."""
    kind = profile.fabric.kind
    yield from judge_ports(profile, lambda port: _judge_port(sources, port, kind), absent="see nic.present")


def _judge_port(sources: Sources, port: NicPort, kind: FabricKind) -> Finding:
    # Everything is read before anything is judged: a port with a part that cannot be read is not up.
    path = port_path(port)
    state, state_name = _numbered(sources, f"{path}/state")
    phys, phys_name = _numbered(sources, f"{path}/phys_state")
    rate_gbps = _rate_gbps(sources, f"{path}/rate")
    layer = sources.tree.text(f"{path}/link_layer")
    interface = _interface_problem(sources, port)
    if state != ACTIVE or phys != LINK_UP:
        seen = f"{state_name}, {phys_name}"
        return _failed(port, f"port is {seen}", seen, "ACTIVE, LinkUp", _CABLE)
    if layer != LINK_LAYERS[kind]:
        summary = f"link layer {layer}, expected {LINK_LAYERS[kind]}"
        return _failed(port, summary, layer, LINK_LAYERS[kind], _SET_LINK_TYPE)
    if rate_gbps < port.rate_gbps:
        summary = f"{rate_gbps:g} Gb/s, expected {port.rate_gbps:g} Gb/s"
        return _failed(port, summary, rate_gbps, port.rate_gbps, _CABLE)
    if interface is not None:
        return interface
    if rate_gbps > port.rate_gbps:
        summary = f"{rate_gbps:g} Gb/s, the profile has {port.rate_gbps:g} Gb/s: correct the profile"
        return Finding(subject_of(port), Verdict.WARN, summary, rate_gbps, port.rate_gbps, "Gb/s")
    up = f"up at {rate_gbps:g} Gb/s"
    return Finding(subject_of(port), Verdict.PASS, up, rate_gbps, port.rate_gbps, "Gb/s")


def _interface_problem(sources: Sources, port: NicPort) -> Finding | None:
    """What is wrong with the port's network interface, None when it is fine or the port has none."""
    if port.netdev is None:
        return None
    try:
        link = sources.net.link(port.netdev)
    except DeviceAbsent:
        return _failed(
            port, f"interface {port.netdev} does not exist", "absent", port.netdev, _NAME_INTERFACE
        )
    if link.operstate != "up" or not link.carrier:
        seen = f"{link.operstate}, {'carrier' if link.carrier else 'no carrier'}"
        return _failed(port, f"interface {port.netdev} is {seen}", seen, "up, carrier", _CABLE)
    if port.mtu_bytes is not None and link.mtu_bytes != port.mtu_bytes:
        summary = f"MTU of {port.netdev} is {link.mtu_bytes} bytes, expected {port.mtu_bytes}"
        repair = (
            f"Set it with ip link set {port.netdev} mtu {port.mtu_bytes}, and in the host's network settings."
        )
        return _failed(port, summary, link.mtu_bytes, port.mtu_bytes, advice.play("nic", repair))
    return None


def _failed(port: NicPort, summary: str, seen: str | float, want: str | float, action: Action) -> Finding:
    return Finding(subject_of(port), Verdict.FAIL, summary, seen, want, action=action)


def _numbered(sources: Sources, path: str) -> tuple[int, str]:
    """A sysfs value like `4: ACTIVE`."""
    text = sources.tree.text(path)
    match = _STATE.fullmatch(text)
    if match is None:
        raise ParseError(f"/{path} reads {text[:40]!r}, not like '4: ACTIVE'")
    return int(match[1]), match[2]


def _rate_gbps(sources: Sources, path: str) -> float:
    text = sources.tree.text(path)
    match = _RATE.match(text)
    if match is None:
        raise ParseError(f"/{path} reads {text[:40]!r}, not like '400 Gb/sec (4X NDR)'")
    return float(match[1])
