"""gpu.recovery_action: does the driver itself ask for a reset or reboot of the GPU?

NVML: field 230 NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (driver 570 and newer); it is a state that ends with the
recovery, where Xid 154 is the event that announces it. What each value asks for is in xid_table.RECOVERY.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import GpuSlot, count_of, judge_readings, no_gpus
from agent.checks.registry import Limits, check
from agent.checks.xid_table import RECOVERY, XidClass
from agent.errors import NotSupported
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

_BASIS = Basis.standard("GPU recovery actions")
_UNLISTED = advice.person("Read `GPU Recovery Action` in nvidia-smi -q and do what it says.")


@check(
    "gpu.recovery_action",
    title="Recovery that the driver asks for",
    source="field 230 NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    serving_class=ServingClass.HARD,
    period_s=10.0,
    fail_for_s=10.0,
    triggers=("kmsg.xid", "nvml"),
    skip=no_gpus,
    action=advice.RESET_GPU,
)
def gpu_recovery_action(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The driver must not ask for any recovery; draining peer-to-peer traffic is only a warning."""
    yield from judge_readings(sources, profile, NvmlGroup.MEMORY, _judge)


def _judge(slot: GpuSlot, now: GpuReading) -> Finding:
    try:
        asked = count_of(now, "recovery_action")
    except NotSupported as cause:
        hint = "driver 570 or newer tells it; with an older one switch this check off in the profile"
        raise NotSupported(f"{cause}: {hint}") from None
    if asked not in RECOVERY:
        summary = f"the driver asks for recovery action {asked}, which this version does not know"
        return Finding(
            slot.subject, Verdict.FAIL, summary, asked, 0, action=_UNLISTED,
            serving_class=ServingClass.SOFT, basis=_BASIS,
        )  # fmt: skip
    words, xid_class, action = RECOVERY[asked]
    if xid_class is XidClass.INFO:
        return Finding(slot.subject, Verdict.PASS, "the driver asks for no recovery", asked, 0, basis=_BASIS)
    verdict = Verdict.WARN if xid_class is XidClass.WATCH else Verdict.FAIL
    summary = f"the driver asks to {words}"
    return Finding(slot.subject, verdict, summary, asked, 0, action=action, basis=_BASIS)
