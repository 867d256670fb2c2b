"""gpu.count, gpu.lost: are all GPUs there and do they answer?

NVML: nvmlDeviceGetCount_v2, nvmlDeviceGetHandleByIndex_v2 (NVML_ERROR_GPU_IS_LOST,
NVML_ERROR_RESET_REQUIRED). Besides, /sys/bus/pci/devices/ADDRESS/config: a GPU that has fallen off the bus
reads all ones there, also when no Xid was logged and NVML hangs.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from agent.checks import advice
from agent.checks.gpus import GpuSlot, expect, no_gpus, plausible_c, read, slots, twice
from agent.checks.pci import normal_address
from agent.checks.registry import Limits, check, unknown
from agent.errors import DeviceAbsent, DeviceLost, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NvmlGroup

PCI_DEVICES = "sys/bus/pci/devices"
NVIDIA_VENDOR = 0x10DE
CLASS_3D_CONTROLLER = 0x0302
#: Vendor and device id of an address at which nothing answers.
NOTHING_THERE = b"\xff\xff\xff\xff"
_COUNT = Basis.profile("gpus.count")
_TOO_MANY = advice.person(
    "Correct gpus.count (and engines.NAME.gpus) in the profile, or check that it is this node's profile."
)
_ANSWERS = Basis.standard("every GPU of the profile answers")


@check(
    "gpu.count",
    title="Number of GPUs",
    source="nvmlDeviceGetCount_v2; on a mismatch also class 0x0302 in /sys/bus/pci/devices",
    serving_class=ServingClass.HARD,
    period_s=10.0,
    fail_for_s=10.0,
    triggers=("kmsg.pcie", "nvml"),
    skip=no_gpus,
    action=advice.REBOOT,
)
def gpu_count(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The driver must show exactly the GPUs of the profile, each once."""
    try:
        counted = sources.nvml.system().device_count
        inventory = sources.nvml.inventory()
    except SourceError as cause:
        yield unknown("node", cause)
        return
    want = profile.gpus.count
    doubled = twice([gpu.uuid for gpu in inventory]) | twice([gpu.pci_bus_id for gpu in inventory])
    if doubled:
        summary = f"NVML lists {len(inventory)} GPUs but {', '.join(sorted(doubled))} more than once"
        yield Finding(
            "node", Verdict.FAIL, summary, len(inventory), want, action=advice.SUPPORT, basis=_COUNT
        )
    elif counted != len(inventory):
        summary = f"NVML counts {counted} GPUs but lists {len(inventory)}, expected {want}"
        yield Finding("node", Verdict.FAIL, summary, len(inventory), want, action=advice.REBOOT, basis=_COUNT)
    elif counted > want:
        text = f"{counted} GPUs, expected {want}"
        yield Finding("node", Verdict.FAIL, text, counted, want, action=_TOO_MANY, basis=_COUNT)
    elif counted != want:
        # With every slot pinned gpu.lost names the missing GPU, and only the engine that owns it must close.
        pinned = len(profile.gpus.pins) == want
        yield Finding(
            "node", Verdict.FAIL, f"{counted} GPUs, expected {want}; {_on_pci(sources)}", counted, want,
            action=advice.REBOOT, serving_class=ServingClass.SOFT if pinned else None, basis=_COUNT,
        )  # fmt: skip
    else:
        lost = sum(gpu.error is not None for gpu in inventory)
        note = f", {lost} of them with errors: see gpu.lost" if lost else ""
        yield Finding("node", Verdict.PASS, f"{counted} GPUs{note}", counted, want, basis=_COUNT)


def _on_pci(sources: Sources) -> str:
    """How many NVIDIA GPUs the PCI bus shows: tells a dead card from a driver that lost one."""
    try:
        devices = sources.tree.names(PCI_DEVICES)
        seen = sum(_is_gpu(sources, f"{PCI_DEVICES}/{device}") for device in devices)
    except SourceError as cause:
        return f"PCI bus not readable ({cause})"
    return f"the PCI bus shows {seen}"


def _is_gpu(sources: Sources, path: str) -> bool:
    if sources.tree.integer(f"{path}/vendor") != NVIDIA_VENDOR:
        return False
    return sources.tree.integer(f"{path}/class") >> 8 == CLASS_3D_CONTROLLER


@check(
    "gpu.lost",
    title="GPU answers",
    source="nvmlDeviceGetHandleByUUID, nvmlDeviceGetTemperature: GPU_IS_LOST, RESET_REQUIRED; PCI config",
    serving_class=ServingClass.IMMEDIATE,
    period_s=2.0,
    waivable=False,
    triggers=("kmsg.xid", "kmsg.pcie", "nvml"),
    skip=no_gpus,
    action=advice.REBOOT,
)
def gpu_lost(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every GPU of the profile must be listed, must answer a simple question and must be on the PCI bus."""
    found = slots(sources, profile)
    expect(sources, found, NvmlGroup.THERMAL)
    for slot in found:
        try:
            answer = _answers(sources, slot)
        except (DeviceLost, DeviceAbsent) as cause:
            gone = _off_the_bus(sources, slot)
            yield _lost(slot, f"{cause}; {gone}" if gone else str(cause), type(cause).__name__)
        except SourceError as cause:
            gone = _off_the_bus(sources, slot)
            yield _lost(slot, f"{gone}; {cause}", "off the bus") if gone else unknown(slot.subject, cause)
        else:
            gone = _removed(sources, slot)
            yield _lost(slot, f"{gone}, whatever NVML shows", "off the bus") if gone else answer


def _lost(slot: GpuSlot, why: str, observed: str) -> Finding:
    return Finding(
        slot.subject, Verdict.FAIL, f"GPU is lost: {why}", observed, "answers", action=advice.REBOOT,
        basis=_ANSWERS,
    )  # fmt: skip


def _address(slot: GpuSlot) -> str | None:
    """Where the GPU is or ought to be on PCI; None when nothing tells."""
    address = slot.identity.pci_bus_id if slot.identity else slot.pin.pci_bus_id if slot.pin else None
    with suppress(SourceError):
        return normal_address(address) if address else None
    return None


def _off_the_bus(sources: Sources, slot: GpuSlot) -> str:
    """What the PCI bus says of a GPU that does not answer; empty when it says nothing against it.

    Only then, because a whole configuration space takes 25 ms to read in a virtual machine.
    """
    address = _address(slot)
    if address is None:
        return ""
    try:
        shown = sources.tree.data(f"{PCI_DEVICES}/{address}/config")
    except SourceError:
        return _removed(sources, slot)
    return f"nothing answers at {address} on the PCI bus" if shown[:4] == NOTHING_THERE else ""


def _removed(sources: Sources, slot: GpuSlot) -> str:
    """Whether the kernel has no such PCI device any more; a tree without any PCI device says nothing."""
    address = _address(slot)
    # The verdict rests on NVML's answer: where the bus cannot be read, nothing is added to it.
    with suppress(SourceError):
        if address is None or sources.tree.exists(f"{PCI_DEVICES}/{address}"):
            return ""
        if (shown := sources.tree.names(PCI_DEVICES)) and address not in shown:
            return f"{address} is gone from the PCI bus"
    return ""


def _answers(sources: Sources, slot: GpuSlot) -> Finding:
    temperature_c = plausible_c(read(sources, slot, NvmlGroup.THERMAL), "temperature_c")
    uuid, gpu = slot.known()
    summary = f"{uuid} at {gpu.pci_bus_id} answers, {temperature_c} C"
    return Finding(slot.subject, Verdict.PASS, summary, "answers", "answers", basis=_ANSWERS)
