"""gpu.ecc, gpu.remap: has GPU memory failed since boot, and is a repair waiting?

NVML: nvmlDeviceGetEccMode, nvmlDeviceGetTotalEccErrors (volatile: since the driver was loaded; lifetime
counts of the card say nothing about today), nvmlDeviceGetRemappedRows.
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, count_of, judge_readings, no_gpus
from agent.checks.registry import Limits, check
from agent.model import Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

_ENABLE_ECC = advice.play("gpu", "Enable ECC with nvidia-smi -e 1 and reboot the node.")
_REPLACE = advice.reseat("Replace the GPU: its memory can no longer be repaired.")


def _no_ecc(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or (None if profile.gpus.ecc else "the profile does not ask for ECC")


@check(
    "gpu.ecc",
    title="Uncorrected memory errors",
    source="nvmlDeviceGetEccMode, nvmlDeviceGetTotalEccErrors(UNCORRECTED, VOLATILE)",
    serving_class=ServingClass.HARD,
    period_s=10.0,
    fail_for_s=10.0,
    triggers=("kmsg.xid",),
    skip=_no_ecc,
    action=advice.RESET_GPU,
)
def gpu_ecc(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """ECC must be on and must have found nothing uncorrectable since the driver was loaded."""

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        if not now.boolean("ecc_enabled"):
            return Finding(
                slot.subject, Verdict.FAIL, "ECC is off: memory errors go unseen", False, True,
                action=_ENABLE_ECC, serving_class=ServingClass.SOFT,
            )  # fmt: skip
        errors = count_of(now, "ecc_uncorrected_volatile")
        if errors > 0:
            summary = f"{errors} uncorrected ECC errors since the driver was loaded"
            return Finding(slot.subject, Verdict.FAIL, summary, errors, 0, action=advice.RESET_GPU)
        return Finding(slot.subject, Verdict.PASS, "ECC on, no uncorrected errors", 0, 0)

    yield from judge_readings(sources, profile, NvmlGroup.MEMORY, judge)


class RemapLimits(Limits):
    """Tolerances of gpu.remap."""

    max_uncorrectable_rows: int = Field(
        511,
        description="Rows remapped for uncorrectable errors that are not worth a warning",
        ge=0,
    )


@check(
    "gpu.remap",
    title="Row remapping",
    source="nvmlDeviceGetRemappedRows",
    serving_class=ServingClass.SOFT,
    limits=RemapLimits,
    period_s=30.0,
    fail_for_s=30.0,
    triggers=("kmsg.xid",),
    skip=_no_ecc,
    action=advice.RESET_GPU,
)
def gpu_remap(sources: Sources, profile: NodeProfile, limits: RemapLimits) -> Iterator[Finding]:
    """No row remap may have failed or wait for a reset; the number of remapped rows is only a warning."""

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        failed, pending = now.boolean("remap_failure"), now.boolean("remap_pending")
        rows = count_of(now, "remap_uncorrected")
        if failed:
            return Finding(
                slot.subject, Verdict.FAIL, "a memory row could not be remapped, no spares left", "failure",
                "none", action=_REPLACE, serving_class=ServingClass.HARD,
            )  # fmt: skip
        if pending:
            summary = "a row remap is pending until the GPU is reset"
            return Finding(slot.subject, Verdict.FAIL, summary, "pending", "none", action=advice.RESET_GPU)
        if rows > limits.max_uncorrectable_rows:
            summary = f"{rows} rows remapped for uncorrectable errors"
            return Finding(
                slot.subject, Verdict.WARN, summary, rows, limits.max_uncorrectable_rows, action=_REPLACE
            )
        return Finding(slot.subject, Verdict.PASS, f"nothing pending, {rows} rows remapped", rows)

    yield from judge_readings(sources, profile, NvmlGroup.MEMORY, judge)
