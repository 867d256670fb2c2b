"""nvlink.fabric: has the GPU been registered with the NVSwitch fabric, and does the fabric call itself well?

NVML: nvmlDeviceGetGpuFabricInfoV. Links can be up with no fabric: every GPU then looks fine and CUDA answers
802, "system not yet initialized", which has been mistaken for a fault of the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.checks import advice
from agent.checks.gpus import GpuSlot, expect, judge_slots, mask_of, no_gpus, read, slots
from agent.checks.nvlink_domains import domain_of
from agent.checks.registry import Limits, check
from agent.errors import ParseError, SourceError
from agent.model import Action, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

COMPLETED = 3
_FM = advice.play(
    "gpu", "Start nvidia-fabricmanager (systemctl enable --now), then reset the GPUs if the state stays."
)
_NO_FABRIC = advice.person(
    "On GPUs before Hopper and without NVSwitches write `nvlink: {fabric: false}`; else start"
    " nvidia-fabricmanager, then reset the GPUs."
)
_WAIT = advice.person(
    "Wait: until the fabric is up, CUDA answers 802 (system not yet initialized) and no engine starts. If it"
    " lasts five minutes, read nvidia-fabricmanager's log."
)
_PARTITION = advice.person(
    "Compare the fabric manager's partitions with nvlink.domains of the profile, then restart"
    " nvidia-fabricmanager."
)
_STATES: dict[int, tuple[str, Action]] = {
    0: ("fabric not supported: the driver sees no NVSwitch fabric", _NO_FABRIC),
    1: ("fabric registration not started: is nvidia-fabricmanager running?", _FM),
    2: ("fabric registration still in progress (CUDA answers 802 until it ends)", _WAIT),
}


@dataclass(frozen=True, slots=True)
class _Part:
    """One field of the health mask (NVML_GPU_FABRIC_HEALTH_MASK_*); 0 is "not supported" in each."""

    name: str
    first_bit: int
    width: int
    faults: frozenset[int]
    warnings: frozenset[int] = frozenset()
    words: Mapping[int, str] | None = None

    def of(self, mask: int) -> int:
        return mask >> self.first_bit & ((1 << self.width) - 1)

    def told(self, mask: int) -> str:
        words = (self.words or {}).get(self.of(mask))
        return f"{self.name}: {words}" if words else self.name


_CONFIGURATION = {
    2: "system GUID",
    3: "chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
#: Two bits each are 1 true, 2 false; 3 is a value that no driver documents. On HGX H200 the mask reads 0.
_TRUE, _ODD = frozenset({1}), frozenset({3})
_HEALTH = (
    _Part("bandwidth degraded", 0, 2, _TRUE, _ODD),
    _Part("route recovery running", 2, 2, frozenset(), _TRUE | _ODD),
    _Part("route unhealthy", 4, 2, _TRUE, _ODD),
    _Part("access timeout recovery running", 6, 2, frozenset(), _TRUE | _ODD),
    _Part("configuration wrong", 8, 4, frozenset(range(2, 16)), words=_CONFIGURATION),
    _Part("no partition assigned", 12, 2, frozenset({2}), _ODD),
    _Part("fabric manager disconnected", 14, 2, frozenset(), frozenset({2, 3})),
)


def no_fabric(profile: NodeProfile) -> str | None:
    """Skip rule: a node whose GPUs sit behind no NVSwitch."""
    return no_gpus(profile) or (None if profile.nvlink.fabric else "the profile has no NVSwitch fabric")


@check(
    "nvlink.fabric",
    title="NVSwitch fabric",
    source="nvmlDeviceGetGpuFabricInfoV: state, status, healthMask, cliqueId",
    serving_class=ServingClass.HARD,
    period_s=10.0,
    fail_for_s=10.0,
    triggers=("kmsg.xid",),
    skip=no_fabric,
    action=_FM,
)
def nvlink_fabric(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each GPU must be registered with success, in one clique with its domain, and in no ill health."""
    found = slots(sources, profile)
    expect(sources, found, NvmlGroup.FABRIC)
    readings = {slot.number: _reading(sources, slot) for slot in found}
    cliques = {number: clique for number, now in readings.items() if (clique := _clique(now)) is not None}

    def judge(slot: GpuSlot) -> Finding:
        now = readings[slot.number]
        if isinstance(now, SourceError):
            raise now
        return _judge(slot, now, _usual_clique(slot.number, cliques, profile))

    yield from judge_slots(found, judge)


def _reading(sources: Sources, slot: GpuSlot) -> GpuReading | SourceError:
    try:
        return read(sources, slot, NvmlGroup.FABRIC)
    except SourceError as cause:
        return cause


def _clique(now: GpuReading | SourceError) -> int | None:
    """The clique of a GPU that is registered; any other GPU has none to compare with."""
    try:
        if isinstance(now, GpuReading) and now.integer("state") == COMPLETED:
            return now.integer("clique_id")
    except SourceError:
        return None
    return None


def _usual_clique(number: int, cliques: Mapping[int, int], profile: NodeProfile) -> int | None:
    """The clique that most GPUs of this one's NVLink domain are in; None when nothing is known."""
    known = [cliques[slot] for slot in domain_of(profile, number) if slot in cliques]
    return Counter(sorted(known)).most_common(1)[0][0] if known else None


def _judge(slot: GpuSlot, now: GpuReading, usual_clique: int | None) -> Finding:
    state, status, mask = now.integer("state"), now.integer("status"), mask_of(now, "health_mask")
    seen, want = f"state {state}, status {status}, health 0x{mask:x}", f"state {COMPLETED}, status 0"
    registered = Basis.profile("nvlink.fabric")

    def finding(verdict: Verdict, words: str, action: Action, basis: Basis = registered) -> Finding:
        return Finding(slot.subject, verdict, words, seen, want, action=action, basis=basis)

    if state in _STATES:
        words, action = _STATES[state]
        return finding(Verdict.FAIL, words, action)
    if state != COMPLETED:
        raise ParseError(f"fabric state {state} is not known")
    if status != 0:
        return finding(Verdict.FAIL, f"fabric registration ended with NVML error {status}", _FM)
    health = Basis.device("healthMask")
    if faults := [part.told(mask) for part in _HEALTH if part.of(mask) in part.faults]:
        return finding(Verdict.FAIL, f"fabric {', '.join(faults)} ({seen})", _FM, health)
    clique = now.integer("clique_id")
    if usual_clique is not None and clique != usual_clique:
        words = f"fabric clique {clique}, the others of its NVLink domain are in {usual_clique}"
        domains = Basis.profile("nvlink.domains")
        return Finding(
            slot.subject, Verdict.FAIL, words, clique, usual_clique, action=_PARTITION, basis=domains
        )
    if warnings := [part.told(mask) for part in _HEALTH if part.of(mask) in part.warnings]:
        return finding(Verdict.WARN, f"fabric {', '.join(warnings)} ({seen})", _WAIT, health)
    return finding(Verdict.PASS, "registered with the fabric", _FM)
