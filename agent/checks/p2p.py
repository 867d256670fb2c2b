"""gpu.p2p: does every GPU reach the others of its NVLink domain over NVLink?

NVML: nvmlDeviceGetP2PStatus (NVLINK, READ). A fabric that is partitioned, or a card that hangs on no switch,
shows here while each GPU's own links are up. Pairs across domains of the profile are not expected to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.checks.gpus import GpuSlot, judge_slots, read, slots
from agent.checks.nvlink_domains import domain_of, engine_of_slot
from agent.checks.nvlink_links import no_nvlink
from agent.checks.registry import Limits, check
from agent.errors import NotSupported, ParseError, SourceError
from agent.model import Action, ActionKind, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NOT_KNOWN, GpuReading, NvmlGroup

OK = 0
#: NVML_P2P_STATUS_*.
_WORDS = {
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by a driver setting",
    5: "not supported",
    6: "unknown",
}
_REPAIR = Action(
    ActionKind.RESET_GPU,
    "Compare the fabric manager's partitions with nvlink.domains of the profile; restart nvidia-fabricmanager"
    " and reset the GPUs.",
)


def _one_gpu(profile: NodeProfile) -> str | None:
    alone = "no NVLink domain has two GPUs" if not _has_pairs(profile) else None
    return no_nvlink(profile) or alone


def _has_pairs(profile: NodeProfile) -> bool:
    return any(len(domain_of(profile, slot)) > 1 for slot in range(profile.gpus.count))


@check(
    "gpu.p2p",
    title="NVLink between GPUs",
    source="nvmlDeviceGetP2PStatus: NVLINK and READ, every pair of a domain",
    serving_class=ServingClass.HARD,
    # A pair takes NVML 3 ms: 56 of them nearly two tenths of a second.
    period_s=120.0,
    deadline_s=15.0,
    fail_for_s=120.0,
    unknown_for_s=300.0,
    triggers=("kmsg.xid",),
    skip=_one_gpu,
    action=_REPAIR,
)
def gpu_p2p(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every pair of GPUs in one NVLink domain must reach each other over NVLink."""
    found = slots(sources, profile)
    places = places_in_inventory(sources, found)
    yield from judge_slots(found, lambda slot: _judge(sources, slot, profile, places))


def places_in_inventory(sources: Sources, found: Sequence[GpuSlot]) -> dict[int, int]:
    """Slot -> place in NVML's list, whose order lists of peers have, for slots whose GPU is well."""
    try:
        order = [gpu.uuid for gpu in sources.nvml.inventory()]
    except SourceError:
        return {}  # then no slot has a GPU either, and each says why
    return {
        slot.number: order.index(slot.identity.uuid)
        for slot in found
        if slot.problem is None and slot.identity is not None and slot.identity.uuid in order
    }


def _judge(sources: Sources, slot: GpuSlot, profile: NodeProfile, places: Mapping[int, int]) -> Finding:
    now = read(sources, slot, NvmlGroup.PEERS)
    over_nvlink, by_read = _row(now, "p2p_nvlink", places), _row(now, "p2p_read", places)
    peers = [peer for peer in domain_of(profile, slot.number) if peer != slot.number]
    if not peers:
        return Finding(slot.subject, Verdict.PASS, "alone in its NVLink domain", 0, 0, "peers")
    # A peer that is lost or hangs is told by gpu.lost: this GPU is not judged by it.
    here = [peer for peer in peers if peer in places]
    states = {peer: _worse(over_nvlink[places[peer]], by_read[places[peer]]) for peer in here}
    bad = {peer: state for peer, state in states.items() if state not in (OK, NOT_KNOWN)}
    good = [peer for peer, state in states.items() if state == OK]
    if bad:
        return _broken(slot, profile, bad, len(peers))
    engine = engine_of_slot(profile, slot.number)
    silent = [peer for peer in here if peer not in good and engine_of_slot(profile, peer) == engine]
    if silent or not good:
        told = ", ".join(f"gpu{peer}" for peer in silent or peers)
        raise NotSupported(f"NVML does not say whether NVLink reaches {told}")
    left_out = f", {len(peers) - len(good)} not judged" if len(good) < len(peers) else ""
    text = f"NVLink reaches {len(good)} of {len(peers)} peers{left_out}"
    return Finding(slot.subject, Verdict.PASS, text, len(good), len(peers), "peers", basis=_basis(profile))


def _row(now: GpuReading, field: str, places: Mapping[int, int]) -> list[int]:
    """One status for each GPU that NVML lists. Raises ParseError for too few or an unknown one."""
    row = now.integers(field)
    if len(row) <= max(places.values(), default=0):
        raise ParseError(f"NVML gives only {len(row)} peers of this GPU")
    if any(status not in (OK, NOT_KNOWN, *_WORDS) for status in row):
        raise ParseError(f"{now.group}.{field} holds a status that NVML does not have")
    return row


def _worse(over_nvlink: int, by_read: int) -> int:
    """The status that counts for a pair: NVLink's own, then whether one may read the other's memory."""
    return over_nvlink if over_nvlink != OK else by_read


def _broken(slot: GpuSlot, profile: NodeProfile, bad: Mapping[int, int], peers: int) -> Finding:
    """A pair that is not OK: whose fault it is decides which engine it concerns.

    A GPU that fails with its own engine's GPUs or with most of its domain fails; one that only fails with a
    few GPUs of another engine is told, and those fail.
    """
    engine = engine_of_slot(profile, slot.number)
    own = [peer for peer in bad if engine_of_slot(profile, peer) == engine]
    verdict = Verdict.FAIL if own or 2 * len(bad) > peers else Verdict.WARN
    first = [f"gpu{peer} ({_WORDS[state]})" for peer, state in bad.items()][:3]
    more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
    text = f"no NVLink to {', '.join(first)}{more}, of {peers} peers in its domain"
    reached = peers - len(bad)
    return Finding(slot.subject, verdict, text, reached, peers, "peers", _REPAIR, basis=_basis(profile))


def _basis(profile: NodeProfile) -> Basis:
    return Basis.profile("nvlink.domains" if profile.nvlink.domains else "gpus.count")
