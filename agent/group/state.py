"""One member's view of the group and what follows from it (pure): start, go on, or end its rank.

recovering -> waiting | go      the agent has looked for the rank of an earlier one
waiting -> go                   head: every member is armed and agrees, a new generation is drawn
                                follower: armed, and the head's fresh status says go
go -> ending                    this rank or another's has ended, has left, is silent, cut off or late
ending -> waiting               the rank has ended here

A generation is one common run of all ranks. NCCL's communicators do not survive the loss of a rank, so a
generation is never mended: it ends on every member and the next one begins when all are armed again, without
anybody's help. Nothing is ordered over the network: a member reads what the others say and decides itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.group.status import MemberStatus, Stage
from agent.launch.backoff import wait_after
from agent.model import EnginePhase
from agent.node_profile import Backoff

_RUNS = frozenset({EnginePhase.STARTING, EnginePhase.UP, EnginePhase.WARM})
_GONE = frozenset({EnginePhase.ABSENT, EnginePhase.BACKOFF, EnginePhase.CRASHLOOP, EnginePhase.UNKILLABLE})
#: What another member's rank may be in while its generation goes on; absent: it is about to start.
_FINE = frozenset(phase.value for phase in _RUNS) | {EnginePhase.ABSENT.value}
_HEAD = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What the profile says of the group, for one member."""

    rank: int
    timeout_s: float
    data_timeout_s: float
    start_deadline_s: float
    backoff: Backoff

    @property
    def is_head(self) -> bool:
        """Whether this member's gate is the one that opens."""
        return self.rank == _HEAD


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """All that a member remembers between two looks. `retired` is the last generation that ended here.

    `begun_mono_s`: when its generation was begun; 0, long ago, for one that was adopted. Nobody joins that:
    a member that lost its rank meanwhile would else start one into ranks that have run for days.
    """

    stage: Stage = Stage.RECOVERING
    generation: str = ""
    since_mono_s: float = 0.0
    reason: str = "the agent has just started"
    ran: bool = False
    came_up: bool = False
    retired: str = ""
    failures: int = 0
    retry_at_mono_s: float = 0.0
    begun_mono_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Mine:
    """This member: its rank's phase, and what keeps it from starting or makes it end its rank.

    `waits_for` has everything but the other members' readiness; `fault` is a confirmed fault of the node,
    `hold` an operator's word. `recovered`: the controller knows whether a rank of an earlier agent runs.
    """

    phase: EnginePhase
    waits_for: tuple[str, ...] = ()
    fault: str = ""
    hold: str = ""
    recovered: bool = True


@dataclass(frozen=True, slots=True)
class Peer:
    """Another member as this one sees it.

    `heard_mono_s`: when its newest authentic and fresh status was asked for; `served_mono_s`: the newest one
    that said that its rank serves; `joined`: the newest generation that it was seen in. `error` and
    `data_error` are those of the last try, empty after a success; before the first try they say so.
    """

    node: str
    rank: int
    status: MemberStatus | None = None
    heard_mono_s: float | None = None
    served_mono_s: float | None = None
    data_mono_s: float | None = None
    joined: str = ""
    error: str = "not asked yet"
    data_error: str = "not asked yet"
    wrong_key: bool = False
    skew_s: float = 0.0

    @property
    def who(self) -> str:
        """Its name in sentences."""
        return f"{self.node} (rank {self.rank})"


@dataclass(frozen=True, slots=True)
class Troubles:
    """The first reason to end the generation, and the first to close the gate; empty: none.

    `own` is the first reason that this member sees for itself; others' words must not come back to them.
    """

    ends: str = ""
    closes: str = ""
    own: str = ""


def decide(
    record: GroupRecord,
    mine: Mine,
    peers: tuple[Peer, ...],
    rules: Rules,
    now_mono_s: float,
    draw: Callable[[], str],
) -> GroupRecord:
    """The record after one look at everything; `draw` makes the name of a new generation."""
    if record.stage is Stage.RECOVERING:
        return _recovered(record, mine, now_mono_s) if mine.recovered else record
    if record.stage is Stage.WAITING:
        return _from_waiting(record, mine, peers, rules, now_mono_s, draw)
    if record.stage is Stage.ENDING:
        return _from_ending(record, rules, now_mono_s) if mine.phase in _GONE else record
    noted = replace(
        record,
        ran=record.ran or mine.phase in _RUNS,
        came_up=record.came_up or mine.phase is EnginePhase.WARM,
    )
    ends = troubles(noted, mine, peers, rules, now_mono_s).ends
    return replace(noted, stage=Stage.ENDING, since_mono_s=now_mono_s, reason=ends) if ends else noted


def _recovered(record: GroupRecord, mine: Mine, now_mono_s: float) -> GroupRecord:
    """After a restart of the agent: its rank lives and its generation is known, or all begins anew."""
    if record.generation and mine.phase in _RUNS:
        return replace(record, stage=Stage.GO, since_mono_s=now_mono_s, ran=True, reason="adopted")
    if mine.phase not in _GONE:
        return replace(
            record, stage=Stage.ENDING, since_mono_s=now_mono_s, reason="a rank of no known generation runs"
        )
    why = "no rank runs"
    return replace(
        record,
        stage=Stage.WAITING,
        generation="",
        retired=record.generation,
        since_mono_s=now_mono_s,
        reason=why,
    )


def _from_waiting(
    record: GroupRecord,
    mine: Mine,
    peers: tuple[Peer, ...],
    rules: Rules,
    now_mono_s: float,
    draw: Callable[[], str],
) -> GroupRecord:
    if mine.phase in _RUNS:
        why = "a rank of no known generation runs"
        return replace(record, stage=Stage.ENDING, since_mono_s=now_mono_s, reason=why)
    if mine.waits_for or mine.phase is not EnginePhase.ABSENT:
        return record
    generation = _drawn(record, peers, now_mono_s, draw) if rules.is_head else _called(record, peers, rules)
    if not generation:
        return record
    return replace(
        record,
        stage=Stage.GO,
        generation=generation,
        since_mono_s=now_mono_s,
        begun_mono_s=now_mono_s,
        reason=f"generation {generation} begins",
        ran=False,
        came_up=False,
    )


def _drawn(record: GroupRecord, peers: tuple[Peer, ...], now_mono_s: float, draw: Callable[[], str]) -> str:
    """A new generation when every other member is armed."""
    ready = all(not peer.error and peer.status is not None and peer.status.armed for peer in peers)
    return draw() if ready and now_mono_s >= record.retry_at_mono_s else ""


def _called(record: GroupRecord, peers: tuple[Peer, ...], rules: Rules) -> str:
    """The generation that the head calls for, while that is fresh."""
    for peer in peers:
        status = peer.status
        if peer.rank != _HEAD or peer.error or status is None:
            continue
        fresh = status.stage == Stage.GO and status.go_age_s <= rules.timeout_s
        return status.generation if fresh and status.generation != record.retired else ""
    return ""


def _from_ending(record: GroupRecord, rules: Rules, now_mono_s: float) -> GroupRecord:
    """Nothing of it is left here; the head waits longer after each generation that never came up."""
    failures = 1 if record.came_up else record.failures + 1
    return replace(
        record,
        stage=Stage.WAITING,
        generation="",
        retired=record.generation,
        since_mono_s=now_mono_s,
        failures=failures,
        retry_at_mono_s=now_mono_s + wait_after(rules.backoff, failures, 0.5),
    )


def troubles(
    record: GroupRecord, mine: Mine, peers: tuple[Peer, ...], rules: Rules, now_mono_s: float
) -> Troubles:
    """What stands against the generation that goes on."""
    ends, closes = _own(record, mine, rules, now_mono_s), [mine.hold] if mine.hold else []
    told: list[str] = []
    for peer in peers:
        ended, closed = _of_peer(record, peer, rules, now_mono_s)
        ends += ended
        closes += closed
        status = peer.status
        if status is not None and status.generation == record.generation and status.trouble:
            told.append(f"{peer.who}: {status.trouble}")
    own = [*ends, *closes]
    first = next(iter([*own, *told]), "")
    return Troubles(next(iter(ends), ""), first, next(iter(own), ""))


def _own(record: GroupRecord, mine: Mine, rules: Rules, now_mono_s: float) -> list[str]:
    since_s = now_mono_s - record.since_mono_s
    if mine.fault:
        return [mine.fault]
    if record.ran and mine.phase not in _RUNS:
        return [f"the rank of this node is {mine.phase.value}"]
    if not record.ran and since_s > rules.timeout_s:
        why = f": {mine.waits_for[0]}" if mine.waits_for else ""
        return [f"this node did not start its rank within {rules.timeout_s:g} s{why}"]
    up = record.came_up or mine.phase in (EnginePhase.UP, EnginePhase.WARM)
    if rules.is_head and not up and since_s > rules.start_deadline_s:
        return [f"not all ranks came up within {rules.start_deadline_s:g} s"]
    return []


def _of_peer(record: GroupRecord, peer: Peer, rules: Rules, now_mono_s: float) -> tuple[list[str], list[str]]:
    """Reasons to end and reasons to close that this member sees in another."""
    silent_s = now_mono_s - max(peer.heard_mono_s or record.since_mono_s, record.since_mono_s)
    if silent_s > rules.timeout_s:
        return [f"{peer.who} has been silent for {silent_s:.0f} s ({peer.error or 'no fresh status'})"], []
    left = _left(record, peer, rules, now_mono_s)
    if left:
        return [left], []
    # Its agent answers on both networks: while it is not heard at all, nothing is known of the data path.
    heard_s = peer.heard_mono_s or record.since_mono_s
    cut_s = heard_s - max(peer.data_mono_s or record.since_mono_s, record.since_mono_s)
    if cut_s <= rules.data_timeout_s:
        return [], []
    text = f"the data path to {peer.who} has been cut for {cut_s:.0f} s ({peer.data_error or 'no answer'})"
    return ([text], []) if cut_s > rules.timeout_s else ([], [text])


def _left(record: GroupRecord, peer: Peer, rules: Rules, now_mono_s: float) -> str:
    """Whether another member is not, or no longer, in this generation."""
    status = peer.status
    if status is None:
        return ""
    why = f": {status.reason}" if status.reason else ""
    if status.generation == record.generation:
        if status.stage == Stage.ENDING:
            return f"{peer.who} ends its rank{why}"
        if status.stage == Stage.GO and status.phase not in _FINE:
            return f"the rank of {peer.who} is {status.phase}"
        return ""
    if peer.joined == record.generation:
        return f"{peer.who} has left{why}"
    if now_mono_s - record.since_mono_s > rules.timeout_s:
        waits = f": {status.waits_for[0]}" if status.waits_for else ""
        return f"{peer.who} did not start its rank within {rules.timeout_s:g} s{waits}"
    return ""
