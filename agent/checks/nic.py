"""nic.present, nic.port: is every data port of the profile there and up? Other ports are nobody's business.

Kernel: /sys/class/infiniband/DEVICE/ports/N/{state,phys_state,rate,link_layer}
(https://docs.kernel.org/admin-guide/abi-stable.html, sysfs-class-infiniband); RTM_GETLINK for the interface.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.checks import advice
from agent.checks.pci import normal_address
from agent.checks.ports import INFINIBAND, address_of, basis_of, judge_ports, no_ports, port_path, subject_of
from agent.checks.registry import Limits, check
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, ParseError
from agent.model import Action, Basis, Finding, ServingClass, Verdict
from agent.node_profile import FabricKind, NicPort, NodeProfile
from agent.sources import Sources

_DRIVER = advice.reseat(
    "Look for the NIC with lspci: reseat it if it is not there, else load its driver (mlx5_ib)."
)
_CABLE = advice.person("Check cable, transceiver and switch port of this link.")
_SET_LINK_TYPE = advice.play("nic", "Set LINK_TYPE_P1 of the card with mlxconfig and reboot the node.")
_NAME_INTERFACE = advice.person(
    "Look for the interface with ip link: load its driver, or correct netdev in the profile."
)
_RATE = advice.person(
    "Correct rate_gbps of this port in the profile, or the speed that the switch is set to."
)
_STATE = re.compile(r"(\d{1,2}):\s*(\S.*)")
_SPEED = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s*Gb/sec\b(?:\s*(\(\d{1,2}X \w+\)))?")
LINK_LAYERS = {FabricKind.ROCE: "Ethernet", FabricKind.IB: "InfiniBand"}
ACTIVE, LINK_UP = 4, 5
_PORT_STATES = Basis.standard("a port that carries traffic")
_RDMA_MTUS = (256, 512, 1024, 2048, 4096)
#: GRH 40, UDP 8, BTH 12, XRC 4, atomic ETH 28, ICRC 4: what iboe_get_mtu() takes off the interface's MTU.
_ROCE_HEADERS_B = 96


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
    sources = reading_once(sources)
    yield from judge_ports(
        profile, lambda port: _judge_present(sources, profile, port), absent="cannot be read"
    )


def _judge_present(sources: Sources, profile: NodeProfile, port: NicPort) -> Finding:
    try:
        devices = sources.tree.names(INFINIBAND)
    except DeviceAbsent:
        devices = []
    if port.device not in devices:
        summary = f"RDMA device {port.device} is not there ({len(devices)} others are)"
        return _failed(port, summary, "absent", "present", _DRIVER, basis_of(profile, port, "device"))
    try:
        numbers = sources.tree.names(f"{INFINIBAND}/{port.device}/ports")
    except DeviceAbsent:
        numbers = []
    if str(port.port) not in numbers:
        summary = f"{port.device} has no port {port.port} (it has {', '.join(numbers) or 'none'})"
        return _failed(port, summary, "absent", "present", _DRIVER, basis_of(profile, port, "port"))
    if port.pci_bus_id is None:
        basis = basis_of(profile, port, "device")
        return Finding(subject_of(port), Verdict.PASS, "present", "present", "present", basis=basis)
    seen, want = address_of(sources, port), normal_address(port.pci_bus_id)
    basis = basis_of(profile, port, "pci_bus_id")
    if seen != want:
        summary = f"{port.device} is at {seen}, expected {want}: the name belongs to another card now"
        return _failed(port, summary, seen, want, _DRIVER, basis)
    return Finding(subject_of(port), Verdict.PASS, f"present at {seen}", seen, want, basis=basis)


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
    yield from judge_ports(
        profile, lambda port: _judge_port(sources, profile, port), absent="see nic.present"
    )


def _judge_port(sources: Sources, profile: NodeProfile, port: NicPort) -> Finding:
    # Everything is read before anything is judged: a port with a part that cannot be read is not up.
    path, kind = port_path(port), profile.fabric.kind
    state, state_name = numbered(sources, f"{path}/state")
    phys, phys_name = numbered(sources, f"{path}/phys_state")
    rate_gbps, lanes = _rate(sources, f"{path}/rate")
    layer = sources.tree.text(f"{path}/link_layer")
    mtu_bytes, problem = _interface(sources, profile, port)
    if state != ACTIVE or phys != LINK_UP:
        seen = f"{state_name}, {phys_name}"
        return _failed(port, f"port is {seen}", seen, "ACTIVE, LinkUp", _CABLE, _PORT_STATES)
    if layer != LINK_LAYERS[kind]:
        summary = f"link layer {' '.join(layer.split())[:40]}, expected {LINK_LAYERS[kind]}"
        return _failed(port, summary, layer, LINK_LAYERS[kind], _SET_LINK_TYPE, Basis.profile("fabric.kind"))
    basis = basis_of(profile, port, "rate_gbps")
    if rate_gbps < port.rate_gbps:
        summary = f"{rate_gbps:g} Gb/s{lanes}, expected {port.rate_gbps:g} Gb/s"
        return _failed(port, summary, rate_gbps, port.rate_gbps, _CABLE, basis, "Gb/s")
    if problem is not None:
        return problem
    if rate_gbps > port.rate_gbps:
        summary = f"{rate_gbps:g} Gb/s, the profile has {port.rate_gbps:g} Gb/s: correct the profile"
        return Finding(
            subject_of(port), Verdict.WARN, summary, rate_gbps, port.rate_gbps, "Gb/s", _RATE, basis=basis
        )
    up = f"up at {rate_gbps:g} Gb/s{lanes}{_rdma_mtu(kind, mtu_bytes)}"
    return Finding(subject_of(port), Verdict.PASS, up, rate_gbps, port.rate_gbps, "Gb/s", basis=basis)


def _interface(sources: Sources, profile: NodeProfile, port: NicPort) -> tuple[int | None, Finding | None]:
    """MTU of the port's network interface, and what is wrong with it; both None when the port has none."""
    if port.netdev is None:
        return None, None
    name = basis_of(profile, port, "netdev")
    try:
        link = sources.net.link(port.netdev)
    except DeviceAbsent:
        summary = f"interface {port.netdev} does not exist"
        return None, _failed(port, summary, "absent", port.netdev, _NAME_INTERFACE, name)
    if link.operstate != "up" or not link.carrier:
        seen = f"{link.operstate}, {'carrier' if link.carrier else 'no carrier'}"
        summary = f"interface {port.netdev} is {seen}"
        return None, _failed(port, summary, seen, "up, carrier", _CABLE, _PORT_STATES)
    if port.mtu_bytes is not None and link.mtu_bytes != port.mtu_bytes:
        summary = f"MTU of {port.netdev} is {link.mtu_bytes} bytes, expected {port.mtu_bytes}"
        repair = (
            f"Set it with ip link set {port.netdev} mtu {port.mtu_bytes}, and in the host's network settings."
        )
        basis = basis_of(profile, port, "mtu_bytes")
        play = advice.play("nic", repair)
        return None, _failed(port, summary, link.mtu_bytes, port.mtu_bytes, play, basis, "bytes")
    return link.mtu_bytes, None


def _rdma_mtu(kind: FabricKind, mtu_bytes: int | None) -> str:
    """The MTU that RDMA takes from the interface's: sysfs does not show it (ib_mtu in iboe_get_mtu())."""
    if kind is not FabricKind.ROCE or mtu_bytes is None:
        return ""
    fits = [size for size in _RDMA_MTUS if size + _ROCE_HEADERS_B <= mtu_bytes]
    return f", RDMA MTU {fits[-1]}" if fits else ", an MTU too small for RDMA"


def _failed(
    port: NicPort,
    summary: str,
    seen: str | float,
    want: str | float,
    action: Action,
    basis: Basis,
    unit: str = "",
) -> Finding:
    return Finding(subject_of(port), Verdict.FAIL, summary, seen, want, unit, action, basis=basis)


def numbered(sources: Sources, path: str) -> tuple[int, str]:
    """A sysfs value like `4: ACTIVE`. Raises ParseError."""
    text = sources.tree.text(path)
    match = _STATE.fullmatch(text)
    if match is None:
        raise ParseError(f"/{path} reads {text[:40]!r}, not like '4: ACTIVE'")
    return int(match[1]), match[2]


def _rate(sources: Sources, path: str) -> tuple[float, str]:
    """Rate in Gb/s, and lanes and generation as the kernel writes them, for a summary."""
    text = sources.tree.text(path)
    match = _SPEED.match(text)
    if match is None:
        raise ParseError(f"/{path} reads {text[:40]!r}, not like '400 Gb/sec (4X NDR)'")
    return float(match[1]), f" {match[2]}" if match[2] else ""
