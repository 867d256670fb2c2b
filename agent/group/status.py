"""What a member tells the others of itself, sealed with the group's key (pure).

The answer is `{"body": {...}, "hmac": "hex"}`; the HMAC-SHA256 is taken over the body as canonical JSON. The
body holds the caller's nonce. So an answer proves who made it and that it was made after it was asked for;
clocks of different nodes are compared, but nothing rests on them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import ParseError, SourceUnavailable
from agent.model import EnginePhase, GateState

SCHEMA = 1
#: Longest answer that is read; a group of 64 nodes stays far below.
MAX_BYTES = 64 * 1024
_NONCE = re.compile(r"[0-9a-f]{16,64}")


class Stage(StrEnum):
    """Where a member is in the common life of the group."""

    RECOVERING = "recovering"  # its agent has just started and looks for the rank of an earlier one
    WAITING = "waiting"  # no rank runs here, or may run
    GO = "go"  # its rank of this generation is to run, or runs
    ENDING = "ending"  # this generation is over: its rank is being stopped


class WrongKey(SourceUnavailable):
    """The answer is not signed with the group's key."""


class MemberStatus(BaseModel):
    """One member at one moment; texts say why it is not armed, not well, or has left."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    schema_version: int = SCHEMA
    node: str
    engine: str
    rank: int
    boot_id: str = ""
    nonce: str = ""
    wall_s: float = 0.0
    age_s: float = 0.0
    #: Hash of each part of the launch that must be the same everywhere.
    parts: dict[str, str] = {}
    driver: str = ""
    engine_version: str = ""
    nccl_version: str = ""
    checkpoint: str = ""
    stage: str = Stage.RECOVERING.value
    generation: str = ""
    #: How long ago this generation was begun here.
    go_age_s: float = 0.0
    phase: str = EnginePhase.ABSENT.value
    gate: str = GateState.BOOTING.value
    #: What keeps this member from starting its rank; empty: armed.
    waits_for: tuple[str, ...] = ()
    #: What this member itself sees that must close the head's gate; empty: well.
    trouble: str = ""
    #: Why its last generation ended.
    reason: str = ""
    #: Seconds since each other member last answered over the data network; -1: it never has.
    data_cut_s: dict[str, float] = {}

    @property
    def armed(self) -> bool:
        """Whether its rank may be started."""
        return self.stage == Stage.WAITING and not self.waits_for

    @property
    def serves(self) -> bool:
        """Whether its rank runs, warm and without trouble (of a follower)."""
        return self.gate == GateState.MEMBER and not self.trouble


def is_nonce(text: str) -> bool:
    """Whether a caller's nonce is one: 16 to 64 lower-case hex digits."""
    return _NONCE.fullmatch(text) is not None


def seal(key: bytes, status: MemberStatus) -> bytes:
    """The answer's bytes."""
    body = status.model_dump(mode="json")
    return json.dumps({"body": body, "hmac": _digest(key, body)}, allow_nan=False).encode() + b"\n"


def unseal(key: bytes, data: bytes) -> MemberStatus:
    """What an answer says. WrongKey, or ParseError for what is no answer of a member."""
    try:
        answer: Any = json.loads(data)
        body, digest = answer["body"], answer["hmac"]
        if not isinstance(body, dict) or not isinstance(digest, str):
            raise ParseError("not the answer of a group member")
        mine = _digest(key, body)
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise ParseError("not the answer of a group member") from cause
    if not hmac.compare_digest(mine.encode(), digest.encode(errors="replace")):
        raise WrongKey("its status is signed with another key: give all members the same key_file")
    if body.get("schema_version") != SCHEMA:
        raise ParseError("its agent is of another version: use the same nodegate on all members")
    try:
        return MemberStatus.model_validate_json(json.dumps(body))
    except ValidationError as cause:
        raise ParseError(f"its status cannot be read ({cause.error_count()} fields)") from cause


def expect(status: MemberStatus, *, nonce: str, node: str, engine: str, rank: int) -> None:
    """Refuse an honest answer to another question. Raises ParseError."""
    if status.nonce != nonce:
        raise ParseError("its status was made for another question (replayed?)")
    told = (status.node, status.engine, status.rank)
    if told != (node, engine, rank):
        says = f"{status.node}, rank {status.rank} of {status.engine}"
        raise ParseError(f"the agent there is {says}: list the members alike in all profiles")


def keyed_hash(key: bytes, value: object) -> str:
    """A short hash of a part of the profile, keyed: arguments may hold what nobody should guess at."""
    return hmac.new(key, canonical(value), hashlib.sha256).hexdigest()[:16]


def canonical(value: object) -> bytes:
    """JSON in the one form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest(key: bytes, body: Mapping[str, Any]) -> str:
    return hmac.new(key, canonical(body), hashlib.sha256).hexdigest()
