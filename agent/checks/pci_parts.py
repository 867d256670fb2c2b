"""Where the profile's GPUs and NICs sit on PCI: addresses and the ports above them, as sysfs has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from agent.checks.gpus import GpuSlot, slots
from agent.checks.pci import normal_address
from agent.checks.ports import address_of, subject_of
from agent.checks.registry import unknown
from agent.errors import DeviceAbsent, DeviceLost, ParseError, SourceError
from agent.model import Finding, gpu_slot_of
from agent.node_profile import FabricKind, NicPort, NodeProfile
from agent.sources import Sources

DEVICES = "sys/bus/pci/devices"
_BRIDGE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class PciPart:
    """A GPU or data port: its subject and its PCI address, or why that is not known."""

    subject: str
    found: str | SourceError

    @property
    def address(self) -> str:
        """The address; raises what kept it from being found."""
        if isinstance(self.found, SourceError):
            raise self.found
        return self.found


def pci_parts(sources: Sources, profile: NodeProfile) -> list[PciPart]:
    """Every GPU slot and data port of the profile; GPUs whose PCIe readings are placeholders are left out."""
    gpus = slots(sources, profile) if profile.gpus.pcie else []
    ports = profile.fabric.ports if profile.fabric.kind is not FabricKind.NONE else []
    return [
        *(PciPart(slot.subject, _of_gpu(slot)) for slot in gpus),
        *(PciPart(subject_of(port), _of_port(sources, port)) for port in ports),
    ]


def has_parts(profile: NodeProfile) -> bool:
    """Whether the profile has anything on PCI to look at."""
    gpus = profile.gpus.count > 0 and profile.gpus.pcie
    return gpus or (profile.fabric.kind is not FabricKind.NONE and bool(profile.fabric.ports))


def judge_parts(parts: list[PciPart], judge: Callable[[str, str], Finding]) -> Iterator[Finding]:
    """Judge (subject, address) of each; a source error makes that one UNKNOWN."""
    for part in parts:
        if isinstance(part.found, DeviceLost | DeviceAbsent):
            # The device itself is gone: another check fails for it, this one only says so.
            where = "gpu.lost" if gpu_slot_of(part.subject) is not None else "nic.present"
            seen = unknown(part.subject, part.found)
            yield replace(seen, summary=f"{seen.summary}: see {where}")
            continue
        try:
            yield judge(part.subject, part.address)
        except SourceError as cause:
            yield unknown(part.subject, cause)


def ports_above(sources: Sources, address: str) -> list[str]:
    """The PCI ports between the root and a device, from the root on. Raises DeviceAbsent, ParseError.

    /sys/bus/pci/devices/ADDRESS links to ../../../devices/pciDDDD:BB/PORT/.../ADDRESS.
    """
    target = sources.tree.link_target(f"{DEVICES}/{address}")
    chain = [name for name in target.lower().split("/") if _BRIDGE.fullmatch(name)]
    if not chain or normal_address(chain[-1]) != address:
        raise ParseError(f"/{DEVICES}/{address} links to {target[:80]!r}, not to the device")
    return chain[:-1]


def _of_gpu(slot: GpuSlot) -> str | SourceError:
    try:
        return normal_address(slot.known()[1].pci_bus_id or "")
    except SourceError as cause:
        return cause


def _of_port(sources: Sources, port: NicPort) -> str | SourceError:
    try:
        return address_of(sources, port)
    except SourceError as cause:
        return cause
