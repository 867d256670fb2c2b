"""nvlink.fabric: has the GPU been registered with the NVSwitch fabric?

NVML: nvmlDeviceGetGpuFabricInfoV. Links can be up with no fabric: every GPU then looks fine and CUDA answers
"system not yet initialized" (802).
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings, mask_of, no_gpus
from agent.checks.registry import Limits, check
from agent.errors import ParseError
from agent.model import Action, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

COMPLETED = 3
_FM = advice.play(
    "gpu", "Start nvidia-fabricmanager (systemctl enable --now), then reset the GPUs if the state stays."
)
_WAIT = advice.person("Wait for nvidia-fabricmanager; if this lasts five minutes, read its log.")
_STATES: dict[int, tuple[str, Action]] = {
    0: ("fabric not supported: the driver sees no NVSwitch fabric", _FM),
    1: ("fabric registration not started: is nvidia-fabricmanager running?", _FM),
    2: ("fabric registration still in progress", _WAIT),
}
#: Name, first bit, width in bits, values that are a fault, values that warn (NVML_GPU_FABRIC_HEALTH_MASK_*).
#: 0 is "not supported" everywhere; on HGX H200 the whole mask reads 0.
_HEALTH: tuple[tuple[str, int, int, frozenset[int], frozenset[int]], ...] = (
    ("bandwidth degraded", 0, 2, frozenset({1}), frozenset({3})),
    ("route recovery running", 2, 2, frozenset(), frozenset({1, 3})),
    ("route unhealthy", 4, 2, frozenset({1}), frozenset({3})),
    ("access timeout recovery running", 6, 2, frozenset(), frozenset({1, 3})),
    ("configuration wrong", 8, 4, frozenset(range(2, 16)), frozenset()),
)


def _no_fabric(profile: NodeProfile) -> str | None:
    return no_gpus(profile) or (None if profile.nvlink.fabric else "the profile has no NVSwitch fabric")


@check(
    "nvlink.fabric",
    title="NVSwitch fabric",
    source="nvmlDeviceGetGpuFabricInfoV: state, status, healthMask",
    serving_class=ServingClass.HARD,
    period_s=5.0,
    fail_for_s=10.0,
    triggers=("kmsg.xid",),
    skip=_no_fabric,
    action=_FM,
)
def nvlink_fabric(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each GPU must be registered with success, and the fabric must report no ill health."""
    yield from judge_readings(sources, profile, NvmlGroup.FABRIC, _judge)


def _judge(slot: GpuSlot, now: GpuReading) -> Finding:
    state, status, mask = now.integer("state"), now.integer("status"), mask_of(now, "health_mask")
    want = f"state {COMPLETED}, status 0"
    seen = f"state {state}, status {status}, health 0x{mask:x}"
    if state in _STATES:
        words, action = _STATES[state]
        return Finding(slot.subject, Verdict.FAIL, words, seen, want, action=action)
    if state != COMPLETED:
        raise ParseError(f"fabric state {state} is not known")
    if status != 0:
        words = f"fabric registration ended with NVML error {status}"
        return Finding(slot.subject, Verdict.FAIL, words, seen, want, action=_FM)
    faults = [name for name, at, width, bad, _ in _HEALTH if _part(mask, at, width) in bad]
    if faults:
        return Finding(
            slot.subject, Verdict.FAIL, f"fabric {', '.join(faults)} ({seen})", seen, want, action=_FM
        )
    warnings = [name for name, at, width, _, warn in _HEALTH if _part(mask, at, width) in warn]
    if warnings:
        return Finding(slot.subject, Verdict.WARN, f"fabric {', '.join(warnings)} ({seen})", seen, want)
    return Finding(slot.subject, Verdict.PASS, "registered with the fabric", seen, want)


def _part(mask: int, at: int, width: int) -> int:
    return mask >> at & ((1 << width) - 1)
