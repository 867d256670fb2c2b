"""gpu.pins, gpu.model, gpu.vbios: is it the right GPU in each slot, with the right firmware?

NVML: nvmlDeviceGetUUID, nvmlDeviceGetSerial, nvmlDeviceGetPciInfo_v3, nvmlDeviceGetName,
nvmlDeviceGetVbiosVersion.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_slots, no_gpus, slots, strangers
from agent.checks.pci import normal_address
from agent.checks.registry import Limits, check, unknown
from agent.errors import SourceError, SourceUnavailable
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import GpuPin, NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuIdentity


def _no_pins(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or (None if profile.gpus.pins else "no GPU is pinned (gpus.pins in the profile)")


@check(
    "gpu.pins",
    title="Pinned GPU in each slot",
    source="nvmlDeviceGetUUID, nvmlDeviceGetSerial, nvmlDeviceGetPciInfo_v3",
    serving_class=ServingClass.HARD,
    period_s=10.0,
    fail_for_s=10.0,
    triggers=("nvml",),
    skip=_no_pins,
    action=advice.RECORD_PINS,
)
def gpu_pins(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each pinned slot must hold its GPU, with the serial number and PCI address that the pin gives."""
    found = slots(sources, profile)
    try:
        inventory = list(sources.nvml.inventory())
    except SourceError as cause:
        yield from (unknown(slot.subject, cause) for slot in found)
        return
    yield from judge_slots(found, lambda slot: _judge_pin(slot, inventory, profile))


def _judge_pin(slot: GpuSlot, inventory: list[GpuIdentity], profile: NodeProfile) -> Finding:
    pin = slot.pin
    if pin is None:
        text = "not pinned although other slots are"
        return _pin_finding(slot, Verdict.WARN, text, None, "a pin", "")
    new = strangers(inventory, profile)
    if slot.identity is None and new:
        at = ", ".join(f"{gpu.uuid} at {gpu.pci_bus_id}" for gpu in new)
        summary = f"pinned {pin.uuid} is not in the node; not pinned anywhere: {at}"
        return _pin_finding(slot, Verdict.FAIL, summary, new[0].uuid, pin.uuid, "uuid")
    uuid, gpu = slot.known()
    problem = _serial_problem(slot, pin, gpu) or _address_problem(slot, pin, gpu)
    if problem is not None:
        return problem
    if len(inventory) == profile.gpus.count and inventory[slot.number].uuid != uuid:
        summary = f"{uuid} is at {gpu.pci_bus_id}, no longer number {slot.number} in PCI bus order"
        return Finding(
            slot.subject, Verdict.WARN, summary, gpu.pci_bus_id, f"number {slot.number}",
            action=advice.RECORD_PINS, basis=Basis.standard("slots follow the PCI bus order"),
        )  # fmt: skip
    return _pin_finding(slot, Verdict.PASS, f"{uuid} at {gpu.pci_bus_id}", uuid, pin.uuid, "uuid")


def _pin_finding(
    slot: GpuSlot, verdict: Verdict, summary: str, seen: str | None, want: str, key: str
) -> Finding:
    path = f"gpus.pins.{slot.number}"
    return Finding(
        slot.subject, verdict, summary, seen, want, action=advice.RECORD_PINS,
        basis=Basis.profile(f"{path}.{key}" if key else path),
    )  # fmt: skip


def _serial_problem(slot: GpuSlot, pin: GpuPin, gpu: GpuIdentity) -> Finding | None:
    if pin.serial is None:
        return None
    if not gpu.serial:
        raise SourceUnavailable("NVML gives no serial number to compare with the pin")
    if gpu.serial == pin.serial:
        return None
    summary = f"serial number {gpu.serial}, pinned {pin.serial}"
    return _pin_finding(slot, Verdict.FAIL, summary, gpu.serial, pin.serial, "serial")


def _address_problem(slot: GpuSlot, pin: GpuPin, gpu: GpuIdentity) -> Finding | None:
    if pin.pci_bus_id is None:
        return None
    if not gpu.pci_bus_id:
        raise SourceUnavailable("NVML gives no PCI address to compare with the pin")
    seen, want = normal_address(gpu.pci_bus_id), normal_address(pin.pci_bus_id)
    if seen == want:
        return None
    summary = f"{pin.uuid} is at {seen}, pinned at {want}: PCI enumeration or the slot has changed"
    return _pin_finding(slot, Verdict.FAIL, summary, seen, want, "pci_bus_id")


def _no_model(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or (None if profile.gpus.model else "the profile names no GPU model")


@check(
    "gpu.model",
    title="GPU model",
    source="nvmlDeviceGetName",
    serving_class=ServingClass.SOFT,
    period_s=60.0,
    fail_for_s=60.0,
    skip=_no_model,
    action=advice.MODEL,
)
def gpu_model(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every GPU must be of the model that the profile names."""

    def judge(slot: GpuSlot) -> Finding:
        _, gpu = slot.known()
        if not gpu.name:
            raise SourceUnavailable("NVML gives no product name")
        verdict = Verdict.PASS if gpu.name == profile.gpus.model else Verdict.FAIL
        text = gpu.name if verdict is Verdict.PASS else f"{gpu.name}, expected {profile.gpus.model}"
        return Finding(
            slot.subject, verdict, text, gpu.name, profile.gpus.model, action=advice.MODEL,
            basis=Basis.profile("gpus.model"),
        )  # fmt: skip

    yield from judge_slots(slots(sources, profile), judge)


def _no_vbios(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or (None if profile.gpus.vbios else "the profile names no VBIOS version")


@check(
    "gpu.vbios",
    title="VBIOS version",
    source="nvmlDeviceGetVbiosVersion",
    serving_class=ServingClass.SOFT,
    period_s=60.0,
    fail_for_s=60.0,
    skip=_no_vbios,
    action=advice.VBIOS,
)
def gpu_vbios(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every GPU must have one of the VBIOS versions that the profile allows."""
    allowed = ", ".join(profile.gpus.vbios)

    def judge(slot: GpuSlot) -> Finding:
        _, gpu = slot.known()
        if not gpu.vbios:
            raise SourceUnavailable("NVML gives no VBIOS version")
        known = gpu.vbios in profile.gpus.vbios
        text = f"VBIOS {gpu.vbios}" if known else f"VBIOS {gpu.vbios}, expected {allowed}"
        return Finding(
            slot.subject, Verdict.PASS if known else Verdict.FAIL, text, gpu.vbios, allowed,
            action=advice.VBIOS, basis=Basis.profile("gpus.vbios"),
        )  # fmt: skip

    yield from judge_slots(slots(sources, profile), judge)
