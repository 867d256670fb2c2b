"""The group of an engine in a FakeNode: this member and what it sees of the others, from a small dict.

    {"rank": 0, "stage": "go", "phase": "warm", "waits_for": [], "serving": true, "retry_in_s": 0,
     "peers": [{"node": "n1", "rank": 1, "age_s": 0.5, "data_age_s": 0.5, "error": "", "skew_s": 0.0,
                "status": {"gate": "member", "stage": "go", ...}}]}
Ages are seconds; what is left out is as in a group that serves well. `{"error": "TIMEOUT"}` in the place of a
peer is one that was never heard of, in the place of its status one that has not said how it is.
"""

from __future__ import annotations

from typing import Any

from agent.group.state import GroupRecord, Mine, Peer, Rules
from agent.group.status import MemberStatus, Stage
from agent.model import EnginePhase
from agent.node_profile import Backoff
from agent.sources.group_reading import GroupObservation

GENERATION = "00000000000000a1"
VERSIONS = {"driver": "580.1", "engine_version": "0.32.0", "nccl_version": "2.28", "checkpoint": "c0ffee"}


def observation(given: dict[str, Any], now_s: float) -> GroupObservation:
    """What the dict says, as of now."""
    rank, stage = given.get("rank", 0), Stage(given.get("stage", "go"))
    since_s = now_s - given.get("since_s", 600.0)
    going = GENERATION if stage in (Stage.GO, Stage.ENDING) else ""
    phase = EnginePhase(given.get("phase", "warm"))
    record = GroupRecord(
        stage, going, since_s, given.get("reason", ""), ran=True, came_up=True,
        retry_at_mono_s=now_s + given.get("retry_in_s", 0.0),
    )  # fmt: skip
    waits = tuple(given.get("waits_for", ()))
    status = MemberStatus(
        node=f"n{rank}", engine="glm", rank=rank, stage=stage.value, generation=going, waits_for=waits,
        phase=phase.value, **{**VERSIONS, **given.get("versions", {})},
    )  # fmt: skip
    peers = tuple(
        _peer(peer, at + (at >= rank), now_s)
        for at, peer in enumerate(given.get("peers", [{"node": "n1", "rank": 1}]))
    )
    rules = Rules(rank, 15.0, 5.0, 900.0, Backoff())
    mine = Mine(phase, waits, given.get("fault", ""), given.get("hold", ""))
    return GroupObservation(now_s, rules, record, mine, status, peers, given.get("serving", True))


def _refused(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"error"}


def _peer(given: dict[str, Any], rank: int, now_s: float) -> Peer:
    if _refused(given):
        return Peer(f"n{rank}", rank, error=given["error"], data_error=given["error"])
    heard_s = now_s - given.get("age_s", 0.5)
    served_s = now_s - given.get("served_s", given.get("age_s", 0.5))
    says = {"stage": "go", "generation": GENERATION, "phase": "warm", "gate": "member", **VERSIONS}
    told = given.get("status", {})
    status = None
    if told is not None and not _refused(told):
        said = {"node": given["node"], "engine": "glm", "rank": given["rank"], **says, **told}
        if said["stage"] == "waiting":
            said["generation"] = ""
        said["waits_for"] = tuple(said.get("waits_for", ()))
        status = MemberStatus(**said)
    return Peer(
        given["node"], given["rank"], status, heard_s, served_s, now_s - given.get("data_age_s", 0.5),
        joined=GENERATION, error=given.get("error", ""), data_error=given.get("data_error", ""),
        wrong_key=given.get("wrong_key", False), skew_s=given.get("skew_s", 0.0),
    )  # fmt: skip
