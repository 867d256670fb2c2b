"""gpu.remap, gpu.repair: does a repair of the GPU wait for a reset, or has one failed?

NVML: nvmlDeviceGetRemappedRows, nvmlDeviceGetRowRemapperHistogram (banks without a spare row left),
nvmlDeviceGetRepairStatus (channel and TPC repair).
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.gpu_ecc import no_ecc
from agent.checks.gpus import GpuSlot, count_of, judge_readings, read
from agent.checks.registry import Limits, check
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

_REPLACE = advice.reseat("Replace the GPU: its memory can no longer be repaired.")
_PLAN = advice.reseat("Plan to replace the GPU: little is left to repair its memory with.")
_NO_REPAIR_WAITS = Basis.standard("no repair may fail or wait for a reset")


class RemapLimits(Limits):
    """Tolerances of gpu.remap."""

    max_uncorrectable_rows: int = Field(
        511,
        description="Rows remapped for uncorrectable errors that are not worth a warning",
        ge=0,
    )
    max_banks_without_spare: int = Field(
        0, description="Memory banks without a spare row left that are not worth a warning", ge=0
    )


@check(
    "gpu.remap",
    title="Row remapping",
    source="nvmlDeviceGetRemappedRows, nvmlDeviceGetRowRemapperHistogram",
    serving_class=ServingClass.SOFT,
    limits=RemapLimits,
    period_s=30.0,
    fail_for_s=30.0,
    triggers=("kmsg.xid",),
    skip=no_ecc,
    action=advice.RESET_GPU,
)
def gpu_remap(sources: Sources, profile: NodeProfile, limits: RemapLimits) -> Iterator[Finding]:
    """No row remap may have failed or wait for a reset; remapped rows and used-up banks are only warnings.

    A pending remap keeps a gate from opening and degrades a serving one: the bad row is out of use already.
    """

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        failed, pending = now.boolean("remap_failure"), now.boolean("remap_pending")
        rows = count_of(now, "remap_uncorrected")
        if failed:
            return Finding(
                slot.subject, Verdict.FAIL, "a memory row could not be remapped, no spares left", "failure",
                "none", action=_REPLACE, serving_class=ServingClass.HARD, basis=_NO_REPAIR_WAITS,
            )  # fmt: skip
        if pending:
            return Finding(
                slot.subject, Verdict.FAIL, "a row remap is pending until the GPU is reset", "pending",
                "none", action=advice.RESET_GPU, basis=_NO_REPAIR_WAITS,
            )  # fmt: skip
        banks = count_of(read(sources, slot, NvmlGroup.ECC), "remap_banks_none")
        return _judge_wear(slot, rows, banks, limits)

    yield from judge_readings(sources, profile, NvmlGroup.MEMORY, judge, NvmlGroup.ECC)


def _judge_wear(slot: GpuSlot, rows: int, banks: int, limits: RemapLimits) -> Finding:
    """How much of the spare rows is used up."""
    if rows > limits.max_uncorrectable_rows:
        return Finding(
            slot.subject, Verdict.WARN, f"{rows} rows remapped for uncorrectable errors", rows,
            f"<= {limits.max_uncorrectable_rows}", "rows", _PLAN, basis=Basis.limit("max_uncorrectable_rows"),
        )  # fmt: skip
    if banks > limits.max_banks_without_spare:
        summary = f"{banks} memory banks have no spare row left: the next bad row there cannot be remapped"
        return Finding(
            slot.subject, Verdict.WARN, summary, banks, f"<= {limits.max_banks_without_spare}", "banks",
            _PLAN, basis=Basis.limit("max_banks_without_spare"),
        )  # fmt: skip
    summary = f"nothing pending, {rows} rows remapped"
    return Finding(slot.subject, Verdict.PASS, summary, rows, basis=_NO_REPAIR_WAITS)


@check(
    "gpu.repair",
    title="Channel and TPC repair",
    source="nvmlDeviceGetRepairStatus",
    serving_class=ServingClass.SOFT,
    period_s=30.0,
    fail_for_s=30.0,
    unknown_blocks_admission=False,  # older drivers do not have the call; gpu.recovery_action asks as well
    triggers=("kmsg.xid",),
    skip=no_ecc,
    action=advice.RESET_GPU,
)
def gpu_repair(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No repair of a memory channel or of a compute unit may wait for a reset of the GPU."""

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        parts = {
            "memory channel": now.boolean("channel_repair_pending"),
            "TPC": now.boolean("tpc_repair_pending"),
        }
        waiting = [name for name, pending in parts.items() if pending]
        if waiting:
            summary = f"repair of a {' and of a '.join(waiting)} is pending until the GPU is reset"
            return Finding(
                slot.subject, Verdict.FAIL, summary, "pending", "none", action=advice.RESET_GPU,
                basis=_NO_REPAIR_WAITS,
            )  # fmt: skip
        return Finding(
            slot.subject, Verdict.PASS, "no repair is pending", "none", "none", basis=_NO_REPAIR_WAITS
        )

    yield from judge_readings(sources, profile, NvmlGroup.ECC, judge)
