"""This node as a member of one engine's group: takes in what is known, decides, and tells gate and others.

The gatekeeper asks for a word at every evaluation (`take`), so what starts, closes or ends a rank never rests
on an older look than the gate's own. Everything here is on the main loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from agent.errors import ConfigError
from agent.evaluate import Blocker, Judgement
from agent.gate_record import GateRecord
from agent.group.agreement import launch_parts
from agent.group.facts import Facts, read_facts
from agent.group.memory import GenerationFile
from agent.group.puller import Puller, path_problems
from agent.group.state import GroupRecord, Mine, Rules, decide, troubles
from agent.group.status import MemberStatus, Stage
from agent.group.verdict import GroupWord, differences, word_on
from agent.group_profile import Group
from agent.log_events import Event, about
from agent.model import Action, EnginePhase, EngineStatus, Verdict, engine_of
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources
from agent.sources.group_reading import GroupBoard, GroupObservation

log = logging.getLogger("nodegate.group")
CHECK = "engine.group"
#: How often versions and checkpoint are read again, and how soon after a reading that failed.
FACTS_PERIOD_S = 30.0
FACTS_RETRY_S = 2.0
#: Between two tries to write to a disk that refused.
DISK_RETRY_S = 2.0
#: Difference of two clocks that a gate's own word tells of; the check has a limit of its own.
SKEW_S = 5.0
_UP = frozenset({EnginePhase.UP.value, EnginePhase.WARM.value})


class RankHands(Protocol):
    """What a member needs of its engine's controller."""

    @property
    def recovered(self) -> bool:
        """Whether it has looked for the engine of an earlier agent."""

    def head_is_up(self) -> None:
        """Say that the head's engine answers: a rank without HTTP is then up too."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member is made of; `max_age_s`: an older status of another member counts as silence."""

    engine: str
    node: str
    key: bytes
    state_dir: Path
    max_age_s: float


class GroupMember:
    """One engine's group, seen from here."""

    def __init__(
        self,
        given: Membership,
        profile: NodeProfile,
        sources: Sources,
        board: GroupBoard,
        hands: RankHands,
        on_news: Callable[[], None],
    ) -> None:
        """Nobody has been asked yet; the generation of an earlier agent is read."""
        self.given = given
        self.key = given.key
        self._sources, self._board, self._hands, self._on_news = sources, board, hands, on_news
        self._clock = sources.clock
        self._profile = profile
        group = self._group
        self._memory = GenerationFile(given.state_dir / f"group-{given.engine}.json", sources.clock.boot_id())
        self._puller = Puller(given.engine, group, given.key, self._clock, given.max_age_s, on_news)
        self._facts = Facts()
        self._disk_problem = ""
        self._disk_again_mono_s = 0.0
        self._parts = launch_parts(profile, self._engine, given.key)
        self._mine = Mine(EnginePhase.ABSENT, recovered=False)
        self._own_reasons: tuple[str, ...] = ("the node has not been looked at yet",)
        self.record = GroupRecord(generation=self._memory.load(), since_mono_s=self._clock.mono_s())

    @property
    def _engine(self) -> Engine:
        return self._profile.engines[self.given.engine]

    @property
    def _group(self) -> Group:
        group = self._engine.group
        if group is None:
            raise ConfigError(f"engines.{self.given.engine} has no group")
        return group

    @property
    def rules(self) -> Rules:
        """The group's times."""
        group = self._group
        return Rules(
            group.rank,
            group.timeout_s,
            group.data_timeout_s,
            group.start_deadline_s or self._engine.start_deadline_s,
            self._engine.backoff,
        )

    def replace_profile(self, profile: NodeProfile) -> None:
        """Another profile with the same group is in force: what must be equal may have changed."""
        self._profile = profile
        self._parts = launch_parts(profile, self._engine, self.key)

    async def run(self) -> None:
        """Pull and read for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._puller.run())
            tasks.create_task(self._read_facts())

    async def _read_facts(self) -> None:
        while True:
            facts = await asyncio.to_thread(read_facts, self._profile, self._engine, self._sources)
            if facts != self._facts:
                self._facts = facts
                self._on_news()
            await asyncio.sleep(FACTS_RETRY_S if facts.problem else FACTS_PERIOD_S)

    def take(self, judgement: Judgement, status: EngineStatus, gate: GateRecord) -> tuple[Judgement, bool]:
        """The judgement with the group's word in it, and whether the rank's generation is over."""
        now_s = self._clock.mono_s()
        self._try_disk_again(now_s)
        self._mine = self._look(judgement, status, gate, now_s)
        decided = decide(self.record, self._mine, self._puller.peers, self.rules, now_s, _draw)
        if decided.stage is Stage.GO and self.record.stage is Stage.WAITING:
            # On the disk before the rank starts: a restarted agent must know what it adopts.
            self._disk_problem = self._memory.save(decided.generation)
            self._disk_again_mono_s = now_s + DISK_RETRY_S
            decided = self.record if self._disk_problem else decided
        if decided.stage is not self.record.stage:
            name, stage, why = self.given.engine, decided.stage, decided.reason
            said = about(Event.GROUP_CHANGED, engine=name, new=stage, reason=why)
            log.info("group of %s: %s: %s", name, stage, why, extra=said)
        self.record = decided
        self._puller.probing = decided.stage is Stage.WAITING
        if self._head_up():
            self._hands.head_is_up()
        seen = self.observation(gate)
        self._board.publish(self.given.engine, seen)
        word = word_on(seen, SKEW_S)
        return _with_word(judgement, word, self.given.engine), decided.stage is Stage.ENDING

    def _try_disk_again(self, now_s: float) -> None:
        """A disk that refused a generation keeps this member unarmed only until it takes something again."""
        if self._disk_problem and now_s >= self._disk_again_mono_s:
            self._disk_again_mono_s = now_s + DISK_RETRY_S
            self._disk_problem = self._memory.save(self.record.retired)

    def observation(self, gate: GateRecord) -> GroupObservation:
        """All that is known now."""
        now_s = self._clock.mono_s()
        status = self.status(gate)
        serving = gate.ready
        peers = self._puller.peers
        return GroupObservation(now_s, self.rules, self.record, self._mine, status, peers, serving)

    def status(self, gate: GateRecord) -> MemberStatus:
        """What the others are told, as of now; nonce and times are put in when somebody asks."""
        now_s, record, facts = self._clock.mono_s(), self.record, self._facts
        going = record.stage is Stage.GO
        peers = self._puller.peers
        bare = MemberStatus(
            node=self.given.node,
            engine=self.given.engine,
            rank=self._group.rank,
            boot_id=self._clock.boot_id(),
            parts=self._parts,
            driver=facts.driver,
            engine_version=facts.engine_version,
            nccl_version=facts.nccl_version,
            checkpoint=facts.checkpoint,
            stage=record.stage.value,
            generation=record.generation,
            go_age_s=round(now_s - record.begun_mono_s, 3) if going else 0.0,
            phase=self._mine.phase.value,
            gate=gate.state.value,
            trouble=troubles(record, self._mine, peers, self.rules, now_s).own[:200] if going else "",
            reason=record.reason[:200],
            data_cut_s=dict(self._puller.data_cut_s()),
        )
        return bare.model_copy(update={"waits_for": self._waits_for(bare)})

    def _look(self, judgement: Judgement, status: EngineStatus, gate: GateRecord, now_s: float) -> Mine:
        """What of this node matters to the group."""
        hold, fault = _hold(gate), _fault(judgement, gate, now_s)
        # A rank that comes back after a crash does so with the soft faults that it served with.
        bridged = judgement.bridged if gate.relaunching else frozenset()
        against = [
            blocker
            for blocker in judgement.admission_blockers
            if blocker.check != CHECK and (blocker.check, blocker.subject) not in bridged
        ]
        missing = [name for name in judgement.missing if name.partition(" ")[0] != CHECK]
        found = [hold] if hold else []
        found += [f"{b.check} {b.subject}: {b.summary}"[:200] for b in against]
        found += [f"{name} has not run yet" for name in missing]
        if status.phase is not EnginePhase.ABSENT:
            found.append(f"its engine is {status.phase.value}: {status.reason}"[:200])
        self._own_reasons = tuple(found[:5])
        self._mine = Mine(status.phase, (), fault, hold, self._hands.recovered)
        return replace(self._mine, waits_for=self.status(gate).waits_for)

    def _waits_for(self, status: MemberStatus) -> tuple[str, ...]:
        """All that keeps this node from starting its rank, but for what only the others can mend."""
        found = list(self._own_reasons)
        if self._facts.problem:
            found.append(self._facts.problem)
        if self._disk_problem:
            found.append(self._disk_problem)
        peers = self._puller.peers
        found += path_problems(peers)
        found += self._puller.blocked.values()
        seen = GroupObservation(0.0, self.rules, self.record, self._mine, status, peers)
        found += differences(seen)
        return tuple(found[:5])

    def _head_up(self) -> bool:
        """Whether the head says that its engine of this generation answers."""
        if self.rules.is_head or self.record.stage is not Stage.GO:
            return False
        head = next((peer.status for peer in self._puller.peers if peer.rank == 0), None)
        return head is not None and head.generation == self.record.generation and head.phase in _UP


def _draw() -> str:
    """The name of a new generation."""
    return secrets.token_hex(8)


def _hold(gate: GateRecord) -> str:
    """An operator's word, or the agent's end, that stands against a rank here."""
    holds = gate.holds
    if gate.shutting_down:
        return "its agent is shutting down"
    if gate.maintenance is not None:
        return f"maintenance: {gate.maintenance.reason}"[:200]
    for words, hold in (("quarantine", holds.quarantine), ("drained", holds.drain)):
        if hold is not None:
            return f"{words}: {hold.reason}"[:200]
    return "an operator restarts the engine" if gate.restarting else ""


def _fault(judgement: Judgement, gate: GateRecord, now_s: float) -> str:
    """A confirmed fault of the node; the engine's own health is its controller's to judge."""
    against = (*judgement.immediate, *judgement.hard)
    if gate.force_active(now_s) is not None:
        against = tuple(blocker for blocker in against if blocker.check in gate.config.unwaivable)
    for blocker in against:
        if engine_of(blocker.subject) is None:
            return f"{blocker.check} {blocker.subject}: {blocker.summary}"[:200]
    return ""


def _with_word(judgement: Judgement, word: GroupWord, engine: str) -> Judgement:
    """The judgement with the group's word of now in the place of the check's."""
    lists = {name: _without(getattr(judgement, name)) for name in _LISTS}
    said = Blocker(CHECK, f"engine:{engine}", word.verdict, word.line, Action(hint=word.hint))
    for name in _COUNTS_AS.get(word.verdict, ()):
        lists[name] = (said, *lists[name])
    return Judgement(
        **lists,
        missing=tuple(name for name in judgement.missing if name.partition(" ")[0] != CHECK),
        bridged=frozenset(key for key in judgement.bridged if key[0] != CHECK),
    )


#: The lists of a judgement, and those in which the group's word stands by its verdict.
_LISTS = ("admission_blockers", "immediate", "hard", "soft", "info")
_COUNTS_AS = {
    Verdict.FAIL: ("immediate", "admission_blockers"),
    Verdict.UNKNOWN: ("admission_blockers",),
    Verdict.WARN: ("info",),
}


def _without(blockers: tuple[Blocker, ...]) -> tuple[Blocker, ...]:
    """The blockers less what the check said, which may be a second old."""
    return tuple(blocker for blocker in blockers if blocker.check != CHECK)
