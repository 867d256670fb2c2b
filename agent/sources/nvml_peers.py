"""The group `peers`: how one GPU reaches every other, asked pair by pair.

A call about two GPUs may hang or crash because of either. Each pair is an ask of its own, so that its
deadline names it; when it fails, both GPUs are left out of pairs for a while, though not of anything else: a
GPU that is really at fault also fails on its own and is then left alone as a whole. A GPU that is known to
hang, to be lost or to hold an unkillable process is never touched as a peer: its place holds NOT_KNOWN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.errors import ParseError
from agent.sources.gpu_reading import GROUP_FIELDS, NOT_KNOWN, GpuIdentity, NvmlGroup
from agent.sources.nvml_ask import Answer, Ask, Fault

FIELDS = tuple(GROUP_FIELDS[NvmlGroup.PEERS])
#: What a GPU's own place holds.
ITSELF = 0

AskMany = Callable[[Sequence[Ask]], Sequence[Answer]]


def pair_rest(uuid: str) -> str:
    """The name under which a GPU is left out of pairs."""
    return f"{uuid} {NvmlGroup.PEERS}"


def pair_ask(gpu: GpuIdentity, peer: GpuIdentity) -> Ask:
    """How `gpu` reaches `peer`; both are known by UUID."""
    args = {
        "uuid": gpu.uuid,
        "pci_bus_id": gpu.pci_bus_id,
        "peer": peer.uuid,
        "peer_pci_bus_id": peer.pci_bus_id,
    }
    both = (str(gpu.uuid), str(peer.uuid))
    what = f"{NvmlGroup.PEERS} of {gpu.uuid} with {peer.uuid}"
    return Ask("pair", what, args, both, tuple(pair_rest(uuid) for uuid in both))


def read_peers(gpu: GpuIdentity, gpus: Sequence[GpuIdentity], ask_many: AskMany, at_s: float) -> Answer:
    """The fields of the group for `gpu` by place in `gpus`, read from `at_s` on; or the error of a pair."""
    peers = {
        place: peer
        for place, peer in enumerate(gpus)
        if peer.uuid != gpu.uuid and peer.uuid is not None and peer.error is None
    }
    answers = ask_many([pair_ask(gpu, peer) for peer in peers.values()])
    pairs: dict[int, Mapping[str, Any]] = {}
    for place, answer in zip(peers, answers, strict=True):
        if answer.error is None:
            pairs[place] = _checked(answer.value, peers[place])
        elif not isinstance(answer.error, Fault) or answer.error.asked:
            return answer
    own = next((place for place, each in enumerate(gpus) if each.uuid == gpu.uuid), None)
    return Answer(at_s, {field: _by_place(field, pairs, own, len(gpus)) for field in FIELDS})


def _checked(values: object, peer: GpuIdentity) -> Mapping[str, Any]:
    if not isinstance(values, dict) or set(values) != set(FIELDS):
        raise ParseError(f"the NVML process sent the wrong fields for the pair with {peer.uuid}")
    return values


def _by_place(field: str, pairs: Mapping[int, Mapping[str, Any]], own: int | None, count: int) -> Any:
    """The values by place, or NVML's refusal if it refused this value for every pair in the same way."""
    found = {place: pair[field] for place, pair in pairs.items()}
    refusals = [value for value in found.values() if isinstance(value, dict)]
    if refusals and len(refusals) == len(found) and all(value == refusals[0] for value in refusals):
        return refusals[0]
    known = {place: value for place, value in found.items() if not isinstance(value, dict)}
    return [ITSELF if place == own else known.get(place, NOT_KNOWN) for place in range(count)]
