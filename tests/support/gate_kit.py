"""Builders for gate tests: judgements, engine states and records in one line each."""

from __future__ import annotations

from agent.evaluate import Blocker, Judgement
from agent.gate import new_gate, step
from agent.gate_record import Evaluated, GateAction, GateConfig, GateEvent, GateRecord
from agent.holds import ForceOpen, Hold
from agent.model import Action, ActionKind, EnginePhase, EngineStatus, Verdict
from agent.node_profile import Mode

UNWAIVABLE = frozenset({"gpu.lost", "engine.health", "engine.group"})
GRACE_S = 10.0
CLEAN = Judgement()
HEAT = Blocker("gpu.thermal_margin", "gpu3", Verdict.FAIL, "margin -4 C, at least 5 C is needed")
LOST = Blocker("gpu.lost", "gpu3", Verdict.FAIL, "NVML says that the GPU is lost", Action(ActionKind.REBOOT))
XID = Blocker("gpu.xid", "gpu3", Verdict.FAIL, "Xid 48", Action(ActionKind.RESET_GPU))
HUNG = Blocker("engine.health", "engine:glm", Verdict.FAIL, "the canary got no answer")
GROUP = Blocker("engine.group", "engine:glm", Verdict.FAIL, "node-b has been silent for 16 s")
MARGIN = Blocker("gpu.margin_trend", "gpu3", Verdict.FAIL, "the margin shrinks")
DRIFT = Blocker("gpu.persistence", "gpu3", Verdict.UNKNOWN, "NVML gave no answer")
HOLD = Hold("work on the loop", "uid 0", 1000.0, "boot-a")


def config(mode: Mode = Mode.MANAGE, engine: str = "glm", *, follower: bool = False) -> GateConfig:
    """A gate with a grace of 10 s."""
    return GateConfig(engine, mode, GRACE_S, UNWAIVABLE, "boot-a", follower)


def status(
    phase: EnginePhase, since_mono_s: float = 0.0, reason: str = "", name: str = "glm"
) -> EngineStatus:
    """The supervisor's word."""
    return EngineStatus(name, phase, since_mono_s, reason)


def force(until_mono_s: float) -> ForceOpen:
    """A force-open that ends at a monotonic time."""
    return ForceOpen("the fleet is down", "uid 0", 1000.0, "boot-a", 1000.0 + until_mono_s, until_mono_s)


class Bench:
    """One gate on the bench: feeds events, steps until it rests, keeps the states seen and what it asked."""

    def __init__(self, mode: Mode = Mode.MANAGE, *, follower: bool = False) -> None:
        self.now = 100.0
        self.record: GateRecord = new_gate(config(mode, follower=follower), self.now)
        self.rank_over = False
        self.judgement = CLEAN
        self.phase = EnginePhase.ABSENT
        self.phase_since = 0.0
        self.seen = [self.record.state]
        self.asked: list[GateAction] = []

    def feed(self, event: GateEvent) -> GateRecord:
        """One event, then evaluations until the state rests."""
        self._step(event)
        return self.settle()

    def settle(self) -> GateRecord:
        """Evaluate the present evidence until the state rests."""
        for _ in range(8):
            before = self.record.state
            engine = status(self.phase, self.phase_since)
            self._step(Evaluated(self.judgement, engine, 1000.0 + self.now, self.rank_over))
            if self.record.state is before:
                return self.record
        raise AssertionError(f"the gate does not come to rest: {self.seen}")

    def _step(self, event: GateEvent) -> None:
        self.record, actions = step(self.record, event, self.now)
        self.asked += actions
        if self.seen[-1] is not self.record.state:
            self.seen.append(self.record.state)

    def be(self, phase: EnginePhase) -> GateRecord:
        """The engine changes phase."""
        self.phase, self.phase_since = phase, self.now
        return self.settle()

    def say(self, judgement: Judgement) -> GateRecord:
        """The results change."""
        self.judgement = judgement
        return self.settle()

    def wait(self, seconds: float) -> GateRecord:
        """Time passes, then a tick."""
        self.now += seconds
        return self.settle()

    def serve(self) -> GateRecord:
        """Go all the way to serving."""
        self.settle()
        for phase in (EnginePhase.STARTING, EnginePhase.UP, EnginePhase.WARM):
            self.be(phase)
        self.asked.clear()
        return self.record
