"""gpu.pcie_errors: does the GPU's PCIe link make more errors than its bit-error rate allows?

NVML: nvmlDeviceGetPcieReplayCounter, fields 173-180 (correctable, NAKs, receiver errors, bad TLP and DLLP,
non-fatal, fatal). Kernel, where the platform has AER: /sys/bus/pci/devices/ADDRESS/aer_dev_{correctable,
nonfatal,fatal}, Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats. A healthy GPU starts with counters
that are not zero, and L0-to-recovery (field 169) grows with every change of speed: only growth of the others
counts. A link of the specified bit-error rate of 1e-12 makes one error in 1e12 bits: a lane of 32 GT/s 1.92 a
minute, 16 of them 31.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpu_pcie import link_part, no_pcie
from agent.checks.gpus import GpuSlot, count_of, judge_readings, read
from agent.checks.pci import normal_address
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, DeviceAbsent, ParseError
from agent.model import Basis, Finding, Measure, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

#: GT/s of a lane by PCIe generation.
LANE_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
#: Field -> words; errors that the link repairs by itself.
REPAIRED = {
    "correctable": "correctable errors",
    "naks_received": "NAKs received",
    "receiver_errors": "receiver errors",
    "bad_tlp": "bad TLPs",
    "naks_sent": "NAKs sent",
    "bad_dllp": "bad DLLPs",
}
UNREPAIRED = {"non_fatal": "non-fatal errors", "fatal": "fatal errors"}
#: Kernel file -> the line with its total, words, whether the link repairs such errors.
AER = {
    "aer_dev_correctable": ("TOTAL_ERR_COR", "correctable AER errors", True),
    "aer_dev_nonfatal": ("TOTAL_ERR_NONFATAL", "non-fatal AER errors", False),
    "aer_dev_fatal": ("TOTAL_ERR_FATAL", "fatal AER errors", False),
}
_RESEAT = advice.reseat(
    "Drain the node at a quiet time and reseat the GPU or its riser; replace it if the errors stay."
)


class PcieErrorLimits(Limits):
    """Tolerances of gpu.pcie_errors."""

    window_s: float = Field(60.0, description="Seconds over which growth is judged", ge=10, le=3600)
    bit_error_rate: float = Field(
        1e-12, description="Errors per bit that a link may make and repair by itself", gt=0, le=1e-6
    )
    max_unrepaired: int = Field(
        0, description="Non-fatal and fatal errors in the window that are allowed", ge=0
    )
    error_counters: bool = Field(
        True, description="false = a GPU without PCIe error counters besides replays (before Hopper)"
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """One counter's growth in the window."""

    words: str
    repaired: bool
    delta: int


@check(
    "gpu.pcie_errors",
    title="PCIe errors",
    source="nvmlDeviceGetPcieReplayCounter, fields 173-180, aer_dev_* in sysfs: growth in the window",
    serving_class=ServingClass.SOFT,
    limits=PcieErrorLimits,
    period_s=30.0,
    # As long as the window: one burst has left the window by then, so only errors that go on are confirmed.
    fail_for_s=60.0,
    clear_for_s=60.0,
    needs_interval_s=2.0,
    triggers=("kmsg.pcie",),
    skip=no_pcie,
    action=_RESEAT,
    if_unreadable=(
        "Before Hopper GPUs have replays alone: `limits: {gpu.pcie_errors: {error_counters: false}}`. Where a"
        " virtual machine hides the link, write `gpus: {pcie: false}` into the profile."
    ),
)
def gpu_pcie_errors(sources: Sources, profile: NodeProfile, limits: PcieErrorLimits) -> Iterator[Finding]:
    """Errors that the link repairs may not exceed its rate; any that it does not repair are a failure."""
    yield from judge_readings(
        sources,
        profile,
        NvmlGroup.PCIE,
        lambda slot, now: _judge(slot, sources, now, limits),
        *((NvmlGroup.PCIE_ERRORS,) if limits.error_counters else ()),
    )


def _judge(slot: GpuSlot, sources: Sources, now: GpuReading, limits: PcieErrorLimits) -> Finding:
    lanes, generation = link_part(now, "max_width"), link_part(now, "max_generation")
    if generation not in LANE_GTS:
        raise ParseError(f"PCIe generation {generation} is not known to this version")
    bits = LANE_GTS[generation] * 1e9 * lanes * limits.window_s
    allowed = math.ceil(round(bits * limits.bit_error_rate, 6))
    replays = count_of(now, "replays")
    counters = {"replays": ("replays", True, replays)} | _of_nvml(sources, slot, limits)
    counters |= _of_kernel(sources, slot)
    growth = _growth(sources, now, counters, limits)
    found = _judged(slot, growth, allowed, f"Gen{generation} x{lanes}", limits)
    return replace(found, measures=(Measure("gpu_pcie_replays_total", replays),))


def _judged(slot: GpuSlot, growth: list[Growth], allowed: int, link: str, limits: PcieErrorLimits) -> Finding:
    broken = [each for each in growth if not each.repaired and each.delta > limits.max_unrepaired]
    if broken:
        return Finding(
            slot.subject, Verdict.FAIL, _described(broken, limits), max(each.delta for each in broken),
            f"<= {limits.max_unrepaired}", "errors", _RESEAT, basis=Basis.limit("max_unrepaired"),
        )  # fmt: skip
    many = [each for each in growth if each.repaired and each.delta > allowed]
    worst = max(each.delta for each in growth)
    want = f"<= {allowed}"
    if many:
        summary = f"{_described(many, limits)}, {link} may make {allowed}"
        return Finding(
            slot.subject, Verdict.WARN, summary, worst, want, "errors", _RESEAT,
            basis=Basis.limit("bit_error_rate"),
        )  # fmt: skip
    summary = f"at most {worst} errors of a kind in {limits.window_s:.0f} s, {link} may make {allowed}"
    return Finding(
        slot.subject, Verdict.PASS, summary, worst, want, "errors", basis=Basis.limit("bit_error_rate")
    )


def _of_nvml(sources: Sources, slot: GpuSlot, limits: PcieErrorLimits) -> dict[str, tuple[str, bool, int]]:
    """The GPU's own counters: name -> words, whether the link repairs such errors, value."""
    if not limits.error_counters:
        return {}
    now = read(sources, slot, NvmlGroup.PCIE_ERRORS)
    repaired = {field: (words, True, count_of(now, field)) for field, words in REPAIRED.items()}
    return repaired | {field: (words, False, count_of(now, field)) for field, words in UNREPAIRED.items()}


def _of_kernel(sources: Sources, slot: GpuSlot) -> dict[str, tuple[str, bool, int]]:
    """The kernel's counters; a platform without AER (a virtual machine) has none of the files."""
    _, gpu = slot.known()
    if not gpu.pci_bus_id:
        return {}
    device = f"sys/bus/pci/devices/{normal_address(gpu.pci_bus_id)}"
    found: dict[str, tuple[str, bool, int]] = {}
    for name, (line, words, repaired) in AER.items():
        try:
            text = sources.tree.text(f"{device}/{name}")
        except DeviceAbsent:
            continue
        found[name] = (words, repaired, aer_total(text, line))
    return found


def aer_total(text: str, line: str) -> int:
    """The number on a line such as `TOTAL_ERR_COR 72`. Raises ParseError."""
    for row in text.splitlines():
        name, _, number = row.strip().rpartition(" ")
        if name == line and number.isascii() and number.isdigit():
            return int(number)
    raise ParseError(f"the kernel's AER counters have no {line}: {text[:40]!r}")


def _growth(
    sources: Sources, now: GpuReading, counters: Mapping[str, tuple[str, bool, int]], limits: PcieErrorLimits
) -> list[Growth]:
    """Growth of every counter. Raises BaselineOnly, once all are sampled, at the first time."""
    found, first = [], None
    for name, (words, repaired, value) in counters.items():
        key = f"gpu.pcie_errors/{now.uuid}/{name}"
        try:
            delta = sources.counters.delta(key, value, now.mono_s, limits.window_s)
            found.append(Growth(words, repaired, delta.delta))
        except BaselineOnly as cause:
            first = first or cause
    if first is not None:
        raise first
    return found


def _described(growth: list[Growth], limits: PcieErrorLimits) -> str:
    parts = ", ".join(f"{each.delta} {each.words}" for each in growth[:3])
    return f"{parts} in {limits.window_s:.0f} s"
