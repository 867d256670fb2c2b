"""The answer of GET /group/ENGINE: bytes of what has been published, sealed for whoever asks with a nonce.

Nothing is looked at and nothing changes. What is published already is old by its age, which is told; the
one thing done at request time is the seal, for it covers the caller's nonce.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.group.status import MemberStatus, is_nonce, seal
from agent.sources.group_reading import GroupObservation

if TYPE_CHECKING:
    from agent.publisher import Publisher, Reply

_NONCE_WORDS = "nonce must be 16 to 64 lower-case hex digits: /group/ENGINE?nonce=HEX"


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """What is published of one engine's group."""

    status: MemberStatus
    seen: GroupObservation
    key: bytes = field(repr=False)


def group_reply(publisher: Publisher, engine: str, nonce: str) -> Reply:
    """200 with the sealed status; 400 for a bad nonce, 404 for an engine without a group, 503 before all."""
    from agent.publisher import Reply

    current = publisher.current
    if not is_nonce(nonce):
        return Reply(400, _json({"error": _NONCE_WORDS}))
    if current is None:
        return Reply(503, _json({"error": "nothing has been published yet"}))
    answer = current.groups.get(engine)
    if answer is None:
        return Reply(
            404, _json({"error": f"engine {engine!r} has no group", "engines": sorted(current.groups)})
        )
    age_s = round(publisher.clock() - current.mono_s, 3)
    going = {"go_age_s": answer.status.go_age_s + age_s} if answer.status.go_age_s else {}
    status = answer.status.model_copy(
        update={"nonce": nonce, "wall_s": time.time(), "age_s": max(0.0, age_s), **going}
    )
    return Reply(200, seal(answer.key, status))


def group_view(seen: GroupObservation, now_mono_s: float) -> dict[str, object]:
    """One engine's group in /status."""
    members = [
        {
            "node": peer.node,
            "rank": peer.rank,
            "heard_s": None if peer.heard_mono_s is None else round(now_mono_s - peer.heard_mono_s, 1),
            "data_s": None if peer.data_mono_s is None else round(now_mono_s - peer.data_mono_s, 1),
            "error": peer.error,
            "data_error": peer.data_error,
            "gate": peer.status.gate if peer.status else None,
            "stage": peer.status.stage if peer.status else None,
            "generation": peer.status.generation if peer.status else None,
            "waits_for": list(peer.status.waits_for) if peer.status else [],
            "clock_skew_s": peer.skew_s,
        }
        for peer in seen.peers
    ]
    return {
        "rank": seen.rules.rank,
        "stage": seen.record.stage.value,
        "generation": seen.record.generation,
        "reason": seen.record.reason,
        "waits_for": list(seen.status.waits_for),
        "members": members,
    }


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
