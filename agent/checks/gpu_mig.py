"""gpu.mig: does every GPU work as a whole? NVML: nvmlDeviceGetMigMode.

Under MIG a GPU is cut into instances: an engine that is given the GPU finds none, or a seventh of it.
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings, no_gpus
from agent.checks.registry import Limits, check
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

_SWITCH_OFF = advice.play(
    "gpu", "Stop the engines, then nvidia-smi -i UUID -mig 0; reset the GPU if the mode stays pending."
)


def _no_mig(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or (None if profile.gpus.mig_off else "the profile does not compare MIG")


@check(
    "gpu.mig",
    title="MIG off",
    source="nvmlDeviceGetMigMode",
    serving_class=ServingClass.SOFT,
    period_s=30.0,
    fail_for_s=30.0,
    skip=_no_mig,
    action=_SWITCH_OFF,
)
def gpu_mig(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No GPU may be cut into instances; one that knows no MIG cannot be."""
    basis = Basis.profile("gpus.mig_off")

    def judge(slot: GpuSlot, now: GpuReading) -> Finding:
        if not now.supported("mig_enabled"):
            return Finding(slot.subject, Verdict.PASS, "has no MIG", False, False, basis=basis)
        if now.boolean("mig_enabled"):
            summary = "MIG is on: the GPU is cut into instances, and no engine gets it as a whole"
            return Finding(slot.subject, Verdict.FAIL, summary, True, False, action=_SWITCH_OFF, basis=basis)
        return Finding(slot.subject, Verdict.PASS, "MIG is off", False, False, basis=basis)

    yield from judge_readings(sources, profile, NvmlGroup.ECC, judge)
