"""gpu.count, gpu.lost: are all GPUs there and do they answer?

NVML: nvmlDeviceGetCount_v2, nvmlDeviceGetHandleByIndex_v2 (NVML_ERROR_GPU_IS_LOST,
NVML_ERROR_RESET_REQUIRED).
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import GpuSlot, no_gpus, plausible_c, read, slots, twice
from agent.checks.registry import Limits, check, unknown
from agent.errors import DeviceAbsent, DeviceLost, SourceError
from agent.model import Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NvmlGroup

PCI_DEVICES = "sys/bus/pci/devices"
NVIDIA_VENDOR = 0x10DE
CLASS_3D_CONTROLLER = 0x0302


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
        yield Finding("node", Verdict.FAIL, summary, len(inventory), want, action=advice.SUPPORT)
    elif counted != len(inventory):
        summary = f"NVML counts {counted} GPUs but lists {len(inventory)}, expected {want}"
        yield Finding("node", Verdict.FAIL, summary, len(inventory), want, action=advice.REBOOT)
    elif counted != want:
        # With every slot pinned gpu.lost names the missing GPU, and only the engine that owns it must close.
        pinned = len(profile.gpus.pins) == want and counted < want
        yield Finding(
            "node", Verdict.FAIL, f"{counted} GPUs, expected {want}; {_on_pci(sources)}", counted, want,
            action=advice.REBOOT, serving_class=ServingClass.SOFT if pinned else None,
        )  # fmt: skip
    else:
        lost = sum(gpu.error is not None for gpu in inventory)
        note = f", {lost} of them with errors: see gpu.lost" if lost else ""
        yield Finding("node", Verdict.PASS, f"{counted} GPUs{note}", counted, want)


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
    source="nvmlDeviceGetHandleByUUID, nvmlDeviceGetTemperature: GPU_IS_LOST, RESET_REQUIRED",
    serving_class=ServingClass.IMMEDIATE,
    period_s=2.0,
    waivable=False,
    triggers=("kmsg.xid", "kmsg.pcie", "nvml"),
    skip=no_gpus,
    action=advice.REBOOT,
)
def gpu_lost(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every GPU of the profile must be listed and must answer a simple question."""
    for slot in slots(sources, profile):
        try:
            yield _answers(sources, slot)
        except (DeviceLost, DeviceAbsent) as cause:
            yield Finding(
                slot.subject, Verdict.FAIL, f"GPU is lost: {cause}", type(cause).__name__, "answers",
                action=advice.REBOOT,
            )  # fmt: skip
        except SourceError as cause:
            yield unknown(slot.subject, cause)


def _answers(sources: Sources, slot: GpuSlot) -> Finding:
    temperature_c = plausible_c(read(sources, slot, NvmlGroup.THERMAL), "temperature_c")
    uuid, gpu = slot.known()
    return Finding(
        slot.subject, Verdict.PASS, f"{uuid} at {gpu.pci_bus_id} answers, {temperature_c} C", "answers"
    )
