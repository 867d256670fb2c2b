"""Builders for tests of groups: members, what they say, and a small world of several on one clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.group.state import GroupRecord, Mine, Peer, Rules, decide
from agent.group.status import MemberStatus, Stage
from agent.group.verdict import GroupWord, word_on
from agent.model import EnginePhase, GateState, Verdict
from agent.node_profile import Backoff
from agent.sources.group_reading import GroupObservation

KEY = b"k" * 32
TIMEOUT_S, DATA_TIMEOUT_S, START_S = 15.0, 5.0, 60.0
RUNS = (EnginePhase.STARTING, EnginePhase.UP, EnginePhase.WARM)


def rules(rank: int) -> Rules:
    """The group's times."""
    backoff = Backoff(first_s=2.0, jitter=0.0)
    return Rules(rank, TIMEOUT_S, DATA_TIMEOUT_S, START_S, backoff)


def says(rank: int = 1, **more: object) -> MemberStatus:
    """A healthy member's status."""
    base = MemberStatus(node=f"n{rank}", engine="glm", rank=rank, stage=Stage.WAITING.value, driver="580")
    return base.model_copy(update=more)


@dataclass
class Node:
    """One member of the small world."""

    rank: int
    record: GroupRecord
    phase: EnginePhase = EnginePhase.ABSENT
    gate: GateState = GateState.PREFLIGHT
    faults: tuple[str, ...] = ()
    driver: str = "580"
    alive: bool = True
    peers: dict[int, Peer] = field(default_factory=dict)
    word: GroupWord = field(default_factory=lambda: GroupWord(Verdict.UNKNOWN, "not yet"))

    def status(self) -> MemberStatus:
        """What it tells the others."""
        waits = self.faults if self.phase is EnginePhase.ABSENT else ("its engine runs",)
        return says(
            self.rank, stage=self.record.stage.value, generation=self.record.generation, gate=self.gate.value,
            phase=self.phase.value, waits_for=waits, reason=self.record.reason, driver=self.driver,
            trouble=self.faults[0] if self.faults and self.record.stage is Stage.GO else "",
        )  # fmt: skip


class World:
    """Several members that pull each other once a second; links can be cut, ranks die, nodes fail.

    Ranks and gates obey the words as the agent's own do: a word of PASS starts, an ending stops.
    """

    def __init__(self, count: int = 2) -> None:
        self.now = 1000.0
        self.drawn = 0
        self.cut: set[tuple[int, int]] = set()
        self.data_cut: set[tuple[int, int]] = set()
        self.nodes = [Node(rank, GroupRecord(since_mono_s=self.now)) for rank in range(count)]
        for node in self.nodes:
            node.peers = {r: Peer(f"n{r}", r) for r in range(count) if r != node.rank}

    @property
    def head(self) -> Node:
        """Rank 0."""
        return self.nodes[0]

    @property
    def open(self) -> bool:
        """Whether the head lets traffic in."""
        return self.head.gate is GateState.SERVING

    def second(self, count: int = 1) -> None:
        """So many seconds pass."""
        for _ in range(count):
            self.now += 1.0
            for node in self.nodes:
                if node.alive:
                    self._pull(node)
                    self._look(node)

    def until_open(self, most_s: int = 60) -> int:
        """Seconds until the head is open."""
        for passed in range(most_s):
            if self.open:
                return passed
            self.second()
        raise AssertionError([(n.record, n.phase, n.word) for n in self.nodes])

    def until_closed(self, most_s: int = 60) -> int:
        """Seconds until the head is closed."""
        for passed in range(most_s):
            if not self.open:
                return passed
            self.second()
        raise AssertionError([(n.record, n.phase, n.word) for n in self.nodes])

    def _pull(self, node: Node) -> None:
        for rank, peer in node.peers.items():
            other, pair = self.nodes[rank], (min(rank, node.rank), max(rank, node.rank))
            data = {"data_error": "no answer"}
            if other.alive and pair not in self.data_cut:
                data = {"data_error": "", "data_mono_s": self.now}
            heard = {"error": "no answer"}
            if other.alive and pair not in self.cut:
                status = other.status()
                heard = {
                    "error": "", "status": status, "heard_mono_s": self.now,
                    "joined": status.generation or peer.joined,
                    "served_mono_s": self.now if status.serves else peer.served_mono_s,
                }  # fmt: skip
            node.peers[rank] = replace(peer, **data, **heard)

    def _look(self, node: Node) -> None:
        peers = tuple(node.peers.values())
        paths = tuple(peer.data_error for peer in peers if peer.data_error)
        differ = tuple("drivers differ" for p in peers if p.status and p.status.driver != node.driver)
        fault = node.faults[0] if node.faults else ""
        mine = Mine(node.phase, (*node.faults, *paths, *differ), fault)
        own = rules(node.rank)
        node.record = decide(node.record, mine, peers, own, self.now, self._draw)
        serving = node.gate is GateState.SERVING
        status = node.status().model_copy(update={"waits_for": mine.waits_for})
        seen = GroupObservation(self.now, own, node.record, mine, status, peers, serving)
        node.word = word_on(seen, 5.0)
        self._obey(node)

    def _obey(self, node: Node) -> None:
        """What gate and controller make of the word, in a second."""
        good = node.word.verdict in (Verdict.PASS, Verdict.WARN) and not node.faults
        if node.record.stage is Stage.ENDING:
            node.phase, node.gate = EnginePhase.ABSENT, GateState.FAILED
        elif node.record.stage is Stage.GO and node.phase is EnginePhase.ABSENT and not node.record.ran:
            node.phase, node.gate = (EnginePhase.STARTING, GateState.LAUNCHING) if good else (
                node.phase, GateState.FAILED)  # fmt: skip
        elif node.phase in RUNS:
            head_up = self.head.phase in (EnginePhase.UP, EnginePhase.WARM) or node.rank == 0
            joined = all(
                n.phase in RUNS and n.record.generation == node.record.generation for n in self.nodes
            )
            if node.phase is EnginePhase.STARTING and joined and head_up:
                node.phase = EnginePhase.WARM
            if node.phase is EnginePhase.WARM:
                up = GateState.SERVING if node.rank == 0 else GateState.MEMBER
                node.gate = up if good else GateState.FAILED

    def _draw(self) -> str:
        self.drawn += 1
        return f"{self.drawn:016x}"
