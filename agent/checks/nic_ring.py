"""nic.ring: have the rings of each data port the profile's number of entries? (ETHTOOL_GRINGPARAM)."""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.ports import judge_ports, netdev_of, not_roce, subject_of
from agent.checks.registry import Limits, check
from agent.errors import ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

_SET = advice.play("nic", "Set them with ethtool -G INTERFACE rx N tx N, at every boot.")


def _not_asked(profile: NodeProfile) -> str | None:
    nic = profile.fabric.nic
    asked = nic.rx_ring is not None or nic.tx_ring is not None
    return not_roce(profile) or (None if asked else "the profile names no ring sizes")


@check(
    "nic.ring",
    title="Ring sizes",
    source="ETHTOOL_GRINGPARAM",
    serving_class=ServingClass.SOFT,
    network=True,
    period_s=60.0,
    fail_for_s=60.0,
    triggers=("net.link",),
    skip=_not_asked,
    action=_SET,
)
def nic_ring(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Receive and transmit rings of each data port must have the profile's number of entries."""
    yield from judge_ports(profile, lambda port: _judge(sources, profile, port), absent="see nic.port")


def _judge(sources: Sources, profile: NodeProfile, port: NicPort) -> Finding:
    ring = sources.net.ring(netdev_of(port))
    if min(ring.rx, ring.tx) < 1 or ring.rx > ring.rx_max or ring.tx > ring.tx_max:
        raise ParseError(
            f"ethtool {port.netdev}: rings of {ring.rx} and {ring.tx} entries,"
            f" at most {ring.rx_max} and {ring.tx_max}, cannot be"
        )
    nic, subject = profile.fabric.nic, subject_of(port)
    sides = {"rx": (ring.rx, nic.rx_ring), "tx": (ring.tx, nic.tx_ring)}
    for side, (seen, want) in sides.items():
        if want is not None and seen != want:
            summary = f"{side} rings of {port.netdev} have {seen} entries, expected {want}"
            basis = Basis.profile(f"fabric.nic.{side}_ring")
            return Finding(subject, Verdict.FAIL, summary, seen, want, "entries", _SET, basis=basis)
    side = "rx" if nic.rx_ring is not None else "tx"
    seen, want = sides[side]
    summary = f"rings have {ring.rx} (rx) and {ring.tx} (tx) entries"
    return Finding(
        subject, Verdict.PASS, summary, seen, want, "entries", basis=Basis.profile(f"fabric.nic.{side}_ring")
    )
