"""The profile's data ports under /sys/class/infiniband, and one way to judge each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from agent.checks.pci import normal_address
from agent.checks.registry import unknown
from agent.errors import DeviceAbsent, SourceError, SourceUnavailable
from agent.model import Basis, Finding, Verdict
from agent.node_profile import FabricKind, NicPort

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile
    from agent.sources import Sources

INFINIBAND = "sys/class/infiniband"
PCI_DEVICES = "sys/bus/pci/devices"


def subject_of(port: NicPort) -> str:
    """The subject of findings about a port: `mlx5_0/1`."""
    return f"{port.device}/{port.port}"


def port_path(port: NicPort) -> str:
    """The port's folder in sysfs."""
    return f"{INFINIBAND}/{port.device}/ports/{port.port}"


def netdev_of(port: NicPort) -> str:
    """The port's network interface. Raises SourceUnavailable when the profile names none."""
    if port.netdev is None:
        raise SourceUnavailable("the profile names no interface for this port")
    return port.netdev


def address_of(sources: Sources, port: NicPort) -> str:
    """PCI address of the port's function as it is now. Raises DeviceAbsent, ParseError, SourceUnavailable."""
    target = sources.tree.link_target(f"{INFINIBAND}/{port.device}/device")
    return normal_address(target.rstrip("/").rsplit("/", 1)[-1])


def basis_of(profile: NodeProfile, port: NicPort, key: str) -> Basis:
    """A key of this port in the profile: `fabric.ports.3.rate_gbps`."""
    ports = profile.fabric.ports
    # By identity: comparing two ports costs as much as judging one.
    place = next((number for number, each in enumerate(ports) if each is port), None)
    return Basis.profile(f"fabric.ports.{ports.index(port) if place is None else place}.{key}")


def no_ports(profile: NodeProfile) -> str | None:
    """Skip rule: a node without data ports."""
    if profile.fabric.kind is FabricKind.NONE:
        return "the profile has no fabric"
    return None if profile.fabric.ports else "the profile names no data ports"


def not_roce(profile: NodeProfile) -> str | None:
    """Skip rule: what only lossless Ethernet has."""
    if profile.fabric.kind is not FabricKind.ROCE:
        return f"the fabric is {profile.fabric.kind}, not roce"
    return no_ports(profile)


def not_ib(profile: NodeProfile) -> str | None:
    """Skip rule: what only InfiniBand has."""
    if profile.fabric.kind is not FabricKind.IB:
        return f"the fabric is {profile.fabric.kind}, not ib"
    return no_ports(profile)


def judge_ports(
    profile: NodeProfile, judge: Callable[[NicPort], Finding], *, absent: str
) -> Iterator[Finding]:
    """Judge port by port: a source error makes that port UNKNOWN; `absent` explains what is not there."""
    for port in profile.fabric.ports:
        try:
            yield judge(port)
        except DeviceAbsent as cause:
            yield Finding(subject_of(port), Verdict.UNKNOWN, f"{cause}: {absent}")
        except SourceError as cause:
            yield unknown(subject_of(port), cause)
