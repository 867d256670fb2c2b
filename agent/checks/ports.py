"""The profile's data ports under /sys/class/infiniband, and one way to judge each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from agent.checks.registry import unknown
from agent.errors import DeviceAbsent, SourceError
from agent.model import Finding, Verdict
from agent.node_profile import FabricKind, NicPort

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile

INFINIBAND = "sys/class/infiniband"


def subject_of(port: NicPort) -> str:
    """The subject of findings about a port: `mlx5_0/1`."""
    return f"{port.device}/{port.port}"


def port_path(port: NicPort) -> str:
    """The port's folder in sysfs."""
    return f"{INFINIBAND}/{port.device}/ports/{port.port}"


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
