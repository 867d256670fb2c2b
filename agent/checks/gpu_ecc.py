"""gpu.ecc, gpu.ecc_sram: has GPU memory failed since the driver was loaded, and is the SRAM worn out?

NVML: nvmlDeviceGetEccMode, nvmlDeviceGetTotalEccErrors (volatile: since the driver was loaded; lifetime
counts of the card say nothing about today), nvmlDeviceGetMemoryErrorCounter (DRAM, SRAM) to say which memory
it was, nvmlDeviceGetSramEccErrorStatus.
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, count_of, judge_readings, no_gpus, read
from agent.checks.registry import Limits, check
from agent.errors import SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

#: What NVML calls the kinds of memory, and people.
KINDS = {"dram": "DRAM", "sram": "SRAM"}
_NO_UNCORRECTED = Basis.standard("no uncorrected memory error")
_ENABLE_ECC = advice.play(
    "gpu",
    "Enable ECC with nvidia-smi -e 1 and reboot the node, or write `gpus: {ecc: false}` into the profile.",
)
_WATCH = advice.person("Watch the count and gpu.remap; plan a replacement of the GPU if it keeps growing.")
_WORN = advice.reseat(
    "Replace the GPU: uncorrected SRAM errors of its lifetime have passed the mark for replacement."
)


class EccLimits(Limits):
    """Tolerances of gpu.ecc."""

    max_corrected: int = Field(
        10_000_000,
        description="Corrected errors since the driver was loaded that are not worth a warning",
        ge=0,
    )


def no_ecc(profile: NodeProfile) -> str | None:
    """Skip rule: the platform has no ECC, or nobody asks for it."""
    return no_gpus(profile) or (None if profile.gpus.ecc else "the profile does not ask for ECC")


@check(
    "gpu.ecc",
    title="Memory errors",
    source="nvmlDeviceGetEccMode, nvmlDeviceGetTotalEccErrors(VOLATILE), nvmlDeviceGetMemoryErrorCounter",
    serving_class=ServingClass.HARD,
    limits=EccLimits,
    period_s=10.0,
    fail_for_s=10.0,
    triggers=("kmsg.xid",),
    skip=no_ecc,
    action=advice.RESET_GPU,
)
def gpu_ecc(sources: Sources, profile: NodeProfile, limits: EccLimits) -> Iterator[Finding]:
    """ECC must be on and must have found nothing uncorrectable since the driver was loaded."""

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        if not now.boolean("ecc_enabled"):
            return Finding(
                slot.subject, Verdict.FAIL, "ECC is off: memory errors go unseen", False, True,
                action=_ENABLE_ECC, serving_class=ServingClass.SOFT, basis=Basis.profile("gpus.ecc"),
            )  # fmt: skip
        lost = count_of(now, "ecc_uncorrected_volatile")
        corrected = count_of(now, "ecc_corrected_volatile")
        if lost > 0:
            kinds = _by_kind(sources, slot, "uncorrected_volatile")
            summary = f"{lost} uncorrected ECC errors since the driver was loaded{kinds}"
            return Finding(
                slot.subject, Verdict.FAIL, summary, lost, 0, "errors", advice.RESET_GPU,
                basis=_NO_UNCORRECTED,
            )  # fmt: skip
        if corrected > limits.max_corrected:
            kinds = _by_kind(sources, slot, "corrected_volatile")
            summary = f"{corrected} corrected ECC errors since the driver was loaded{kinds}"
            return Finding(
                slot.subject, Verdict.WARN, summary, corrected, f"<= {limits.max_corrected}", "errors",
                _WATCH, basis=Basis.limit("max_corrected"),
            )  # fmt: skip
        summary = f"ECC on, no uncorrected errors, {corrected} corrected"
        return Finding(slot.subject, Verdict.PASS, summary, 0, 0, "errors", basis=_NO_UNCORRECTED)

    yield from judge_readings(sources, profile, NvmlGroup.MEMORY, judge)


def _by_kind(sources: Sources, slot: GpuSlot, what: str) -> str:
    """Which memory it was, as far as NVML tells: the verdict is there already and rests on the total."""
    parts = []
    with suppress(SourceError):
        now = read(sources, slot, NvmlGroup.ECC)
        parts = [f"{name} {n}" for kind, name in KINDS.items() if (n := count_of(now, f"{kind}_{what}"))]
    return f" ({', '.join(parts)})" if parts else ""


class SramLimits(Limits):
    """Tolerances of gpu.ecc_sram."""

    max_uncorrected: int = Field(
        4, description="Uncorrected SRAM errors in the card's lifetime that are tolerated", ge=0
    )


@check(
    "gpu.ecc_sram",
    title="SRAM errors of the card's lifetime",
    source="nvmlDeviceGetSramEccErrorStatus, nvmlDeviceGetMemoryErrorCounter(SRAM, VOLATILE)",
    serving_class=ServingClass.SOFT,
    limits=SramLimits,
    period_s=30.0,
    fail_for_s=30.0,
    triggers=("kmsg.xid",),
    skip=no_ecc,
    action=_WORN,
)
def gpu_ecc_sram(sources: Sources, profile: NodeProfile, limits: SramLimits) -> Iterator[Finding]:
    """The card must not say that its SRAM has passed the mark for replacement, nor be close to it."""

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        ever, lately = count_of(now, "sram_uncorrected_aggregate"), count_of(now, "sram_uncorrected_volatile")
        if now.boolean("sram_threshold_exceeded"):
            summary = f"the card reports its SRAM error threshold as exceeded ({ever} uncorrected errors)"
            return Finding(
                slot.subject, Verdict.FAIL, summary, True, False, action=_WORN,
                serving_class=ServingClass.HARD, basis=Basis.device("bThresholdExceeded"),
            )  # fmt: skip
        if ever > limits.max_uncorrected:
            summary = (
                f"{ever} uncorrected SRAM errors in the card's lifetime, {lately} since the driver loaded"
            )
            return Finding(
                slot.subject, Verdict.FAIL, summary, ever, f"<= {limits.max_uncorrected}", "errors", _WORN,
                basis=Basis.limit("max_uncorrected"),
            )  # fmt: skip
        summary = f"{ever} uncorrected SRAM errors in the card's lifetime, threshold not exceeded"
        return Finding(
            slot.subject, Verdict.PASS, summary, ever, f"<= {limits.max_uncorrected}", "errors",
            basis=Basis.limit("max_uncorrected"),
        )  # fmt: skip

    yield from judge_readings(sources, profile, NvmlGroup.ECC, judge)
