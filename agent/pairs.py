"""What a prefill-decode pair answers, from the answers of its engines (pure).

The engines of a pair keep gates of their own. The pair is ready while enough of its prefill engines and
enough of its decode engines are. A load balancer that sends traffic to the pair's router asks `/readyz/PAIR`;
`/readyz` without a name stays every engine, whatever pairs there are: it says whether the node is whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.group_profile import Pair
from agent.model import GateState
from agent.node_profile import NodeProfile
from agent.publisher import Answer, blocking_item, worst_state

_FULL_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Side:
    """The prefill or the decode engines of a pair."""

    role: str
    need: int
    members: tuple[Answer, ...]

    @property
    def open(self) -> tuple[Answer, ...]:
        """Those that are ready."""
        return tuple(member for member in self.members if member.ready)

    @property
    def closed(self) -> tuple[Answer, ...]:
        """Those that are not."""
        return tuple(member for member in self.members if not member.ready)

    @property
    def lacks(self) -> bool:
        """Whether too few are ready."""
        return len(self.open) < self.need

    def summary(self) -> str:
        """What is missing for what."""
        missing = ", ".join(f"{member.engine} ({member.state})" for member in self.closed)
        return (
            f"{len(self.open)} of {len(self.members)} {self.role} engines ready, {self.need} needed; "
            f"missing: {missing}"
        )


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """A pair: what it answers, and how its two sides stand."""

    answer: Answer
    sides: tuple[Side, Side]
    weight_percent: int


def pair_answers(profile: NodeProfile, answers: Mapping[str, Answer]) -> dict[str, PairAnswer]:
    """The answers of all pairs; `answers` has every engine of the profile."""
    return {name: _pair(name, pair, profile, answers) for name, pair in profile.pairs.items()}


def pair_view(pair: PairAnswer, ready: bool, agent_line: str) -> dict[str, Any]:
    """A pair for /status; `ready` and `agent_line` are as they are answered now."""
    stale = pair.answer.ready and not ready
    return {
        "pair": pair.answer.engine,
        "state": pair.answer.state,
        "ready": ready,
        "reason": "the answer is too old" if stale else pair.answer.reason,
        "weight_percent": pair.weight_percent if ready else 0,
        "agent_check": agent_line,
        **{
            side.role: {
                "need": side.need,
                "ready": [member.engine for member in side.open],
                "missing": [member.engine for member in side.closed],
            }
            for side in pair.sides
        },
    }


def _pair(name: str, pair: Pair, profile: NodeProfile, answers: Mapping[str, Answer]) -> PairAnswer:
    sides = (
        Side("prefill", pair.min_prefill, tuple(answers[engine] for engine in pair.prefill)),
        Side("decode", pair.min_decode, tuple(answers[engine] for engine in pair.decode)),
    )
    lacking = [side for side in sides if side.lacks]
    if lacking:
        return PairAnswer(_closed(name, lacking), sides, 0)
    weight_percent = min(_weight_percent(side, profile) for side in sides)
    return PairAnswer(_open(name, sides, weight_percent), sides, weight_percent)


def _closed(name: str, lacking: Sequence[Side]) -> Answer:
    """Not ready: the state and the agent-check line are those of the worst engine that is missing."""
    missing = tuple(member for side in lacking for member in side.closed)
    state = worst_state(missing)
    worst = next(member for member in missing if member.state == state)
    needs = [blocking_item(side.summary(), f"pair.{side.role}", f"pair:{name}") for side in lacking]
    return Answer(
        engine=name,
        state=state,
        ready=False,
        reason="; ".join(side.summary() for side in lacking),
        blocking=(*needs, *(item for member in missing for item in member.blocking)),
        agent_line=worst.agent_line,
    )


def _open(name: str, sides: Sequence[Side], weight_percent: int) -> Answer:
    """Ready; degraded when an engine is, or when some of several are closed."""
    members = [member for side in sides for member in side.members]
    forced = next((member.forced for member in members if member.ready and member.forced), "")
    weak = [member for member in members if not member.ready or member.state == GateState.DEGRADED]
    text = ", ".join(f"{member.engine} is {member.state}" for member in weak)
    return Answer(
        engine=name,
        state=(GateState.DEGRADED if weak else GateState.SERVING).value,
        ready=True,
        reason=text or "enough prefill and decode engines are ready",
        blocking=(),
        agent_line=f"up ready {weight_percent}%{' #FORCED-OPEN' if forced else ''}",
        forced=forced,
    )


def _weight_percent(side: Side, profile: NodeProfile) -> int:
    """What the side is worth of what it would be with all engines serving; the weaker side limits a pair."""
    worth = 0
    for member in side.open:
        degraded = member.state == GateState.DEGRADED
        gate = profile.engines[member.engine].gate
        worth += gate.degraded_weight_percent if degraded else _FULL_PERCENT
    return max(1, worth // len(side.members))
