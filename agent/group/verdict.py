"""What one look at the group means for this member's gate (pure): a verdict, and why in one line.

Both the check `engine.group` and the gate use it, the gate at every step: a result that is a second old must
neither start a rank nor open the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.group.agreement import disagreements, not_compared
from agent.group.state import Peer, troubles
from agent.group.status import Stage
from agent.model import EnginePhase, Verdict

if TYPE_CHECKING:
    from agent.sources.group_reading import GroupObservation

_LONGEST = 220
_CHECK_CLOCKS = "set the clocks of both nodes (NTP); nothing but logs rests on them"


@dataclass(frozen=True, slots=True)
class GroupWord:
    """The verdict, why, and the member that it is about (empty: this one, or all)."""

    verdict: Verdict
    summary: str
    hint: str = ""

    @property
    def line(self) -> str:
        """The summary, bounded."""
        return self.summary[:_LONGEST]


def word_on(seen: GroupObservation, skew_s: float) -> GroupWord:
    """The word on what was seen; `skew_s`: difference of the clocks that is worth telling."""
    stage = seen.record.stage
    if stage is Stage.RECOVERING:
        return GroupWord(Verdict.UNKNOWN, "looking for the rank of an earlier agent")
    if stage is Stage.ENDING:
        why = f"generation {seen.record.generation} is over: {seen.record.reason}"
        return GroupWord(Verdict.FAIL, why, "Mend the cause; the group starts again by itself.")
    if stage is Stage.WAITING:
        return _before(seen)
    if seen.mine.phase is EnginePhase.ABSENT:
        return GroupWord(Verdict.PASS, f"generation {seen.record.generation}: all members start their ranks")
    if seen.mine.phase is not EnginePhase.WARM:
        return GroupWord(Verdict.UNKNOWN, f"generation {seen.record.generation}: the ranks come up")
    return _while_warm(seen, skew_s)


def differences(seen: GroupObservation) -> tuple[str, ...]:
    """What differs between the members, and who cannot be believed."""
    found: list[str] = []
    for peer in seen.peers:
        if peer.wrong_key:
            found.append(f"{peer.who}: {peer.error}")
        elif peer.status is not None:
            found += disagreements(seen.status, peer.status)
    return tuple(found)


def _before(seen: GroupObservation) -> GroupWord:
    """No generation runs: who or what is waited for."""
    differ = differences(seen)
    if differ:
        more = f" (and {len(differ) - 1} more)" if len(differ) > 1 else ""
        hint = "Compare the profiles and versions of the members and make them equal."
        return GroupWord(Verdict.FAIL, f"{differ[0]}{more}", hint)
    silent = next((peer for peer in seen.peers if peer.error), None)
    if silent is not None:
        return GroupWord(
            Verdict.UNKNOWN,
            f"no status from {silent.who}: {silent.error}",
            "Look whether the agent runs there and its port can be reached from here.",
        )
    if seen.status.waits_for:
        return GroupWord(Verdict.UNKNOWN, f"this node is not armed: {seen.status.waits_for[0]}")
    return _others(seen)


def _others(seen: GroupObservation) -> GroupWord:
    for peer in seen.peers:
        status = peer.status
        if status is not None and not status.armed:
            why = status.waits_for[0] if status.waits_for else f"it is {status.stage}"
            return GroupWord(Verdict.UNKNOWN, f"{peer.who} is not armed: {why}")
    wait_s = seen.record.retry_at_mono_s - seen.mono_s
    if not seen.rules.is_head:
        return GroupWord(Verdict.UNKNOWN, f"armed; {_head(seen.peers)} begins the next generation")
    last = f" after: {seen.record.reason}"
    return GroupWord(Verdict.UNKNOWN, f"all are armed; the next start is in {max(0.0, wait_s):.0f} s{last}")


def _head(peers: tuple[Peer, ...]) -> str:
    return next((peer.who for peer in peers if peer.rank == 0), "the head")


def _while_warm(seen: GroupObservation, skew_s: float) -> GroupWord:
    """The rank runs and is warm: troubles close, and the head opens only when all others serve."""
    found = troubles(seen.record, seen.mine, seen.peers, seen.rules, seen.mono_s)
    against = found.closes if seen.rules.is_head else found.own
    if against:
        return GroupWord(Verdict.FAIL, against, "Look at that member: nodegate status there says more.")
    if seen.rules.is_head:
        late = _not_serving(seen)
        if late is not None:
            return late
    return _notes(seen, skew_s)


def _not_serving(seen: GroupObservation) -> GroupWord | None:
    """A member that does not say that its rank serves; while the head serves that is borne for a while.

    (An agent that is restarted there adopts its rank within seconds.)
    """
    borne: GroupWord | None = None
    for peer in seen.peers:
        status = peer.status
        says = status is not None and status.generation == seen.record.generation and status.serves
        if says and (seen.serving or not peer.error):
            continue
        what = f"gate {status.gate}, rank {status.phase}" if status is not None else "silent"
        if not seen.serving:
            return GroupWord(Verdict.UNKNOWN, f"{peer.who} does not serve yet ({what})")
        since_s = seen.mono_s - (peer.served_mono_s if peer.served_mono_s is not None else -1e9)
        if since_s > seen.rules.timeout_s:
            text = f"{peer.who} has not served for {seen.rules.timeout_s:g} s ({what})"
            return GroupWord(Verdict.FAIL, text, "Look at that member: nodegate status there says more.")
        # Another one may have been away for too long.
        borne = borne or GroupWord(Verdict.WARN, f"{peer.who} does not serve just now ({what})")
    return borne


def _notes(seen: GroupObservation, skew_s: float) -> GroupWord:
    """All is well, or well enough to go on."""
    differ = differences(seen)
    if differ:
        text = f"the next start will be refused: {differ[0]}"
        return GroupWord(Verdict.WARN, text, "Make them equal before the next start.")
    for peer in seen.peers:
        if abs(peer.skew_s) > skew_s:
            text = f"the clock of {peer.who} differs by {peer.skew_s:+.1f} s"
            return GroupWord(Verdict.WARN, text, _CHECK_CLOCKS.capitalize() + ".")
        if peer.error:
            return GroupWord(
                Verdict.WARN,
                f"{peer.who} does not answer just now: {peer.error}",
                "Wait; the group ends its generation if that lasts.",
            )
    unknown = not_compared(seen.status)
    if unknown:
        text = f"{' and '.join(unknown)} could not be compared: the program is not an installed package"
        return GroupWord(Verdict.WARN, text, "Compare them by hand, or name the program's own path.")
    count = len(seen.peers) + 1
    return GroupWord(Verdict.PASS, f"generation {seen.record.generation}: all {count} members are well")
