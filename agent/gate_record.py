"""What a gate knows, what can happen to it and what it may ask for: the types of gate.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.evaluate import Blocker, Judgement
from agent.holds import EngineHolds, ForceOpen, Hold
from agent.model import EnginePhase, EngineStatus, GateState
from agent.node_profile import Mode

#: The states in which traffic is let in.
OPEN = frozenset({GateState.SERVING, GateState.DEGRADED})
#: The states in which the engine works for clients: behind this gate or, a member, behind its head's.
IN_SERVICE = OPEN | {GateState.MEMBER}


@dataclass(frozen=True, slots=True)
class GateConfig:
    """What does not change while a gate lives; `unwaivable` are the checks that nothing overrides.

    `follower`: the engine is a rank of a group and not its head; this gate never opens.
    """

    engine: str
    mode: Mode
    drain_grace_s: float
    unwaivable: frozenset[str] = frozenset()
    boot_id: str = ""
    follower: bool = False


@dataclass(frozen=True, slots=True)
class GateRecord:
    """All that one gate remembers. Times are monotonic seconds.

    `stop_at_mono_s` is when the engine is to be stopped after the load balancers' grace; `forced` says that
    the gate is open only because of a force-open; `relaunching` that it was open and only its engine failed:
    what would not have closed it does not keep it closed; `maintenance` is the node's hold, `holds` are this
    engine's.
    """

    config: GateConfig
    state: GateState = GateState.BOOTING
    since_mono_s: float = 0.0
    reason: str = "the agent has just started"
    blockers: tuple[Blocker, ...] = ()
    judgement: Judgement | None = None
    engine: EngineStatus | None = None
    maintenance: Hold | None = None
    holds: EngineHolds = field(default_factory=EngineHolds)
    forced: bool = False
    restarting: bool = False
    relaunching: bool = False
    shutting_down: bool = False
    stop_at_mono_s: float | None = None
    cleared_mono_s: float | None = None
    rank_over: bool = False

    @property
    def ready(self) -> bool:
        """Whether traffic is let in."""
        return self.state in OPEN

    @property
    def in_service(self) -> bool:
        """Whether the engine works for clients: the gate is open, or it is a member behind its head."""
        return self.state in IN_SERVICE

    @property
    def to_clear(self) -> bool:
        """Whether an operator's clear changes anything for this gate."""
        judged, engine = self.judgement, self.engine
        faults = judged and (
            judged.immediate or judged.hard or judged.soft or judged.info or judged.admission_blockers
        )
        crashed = engine is not None and engine.phase in (EnginePhase.BACKOFF, EnginePhase.CRASHLOOP)
        return bool(self.holds.quarantine or self.holds.force_open or faults or crashed)

    def force_active(self, now_mono_s: float) -> ForceOpen | None:
        """The force-open that counts now."""
        force = self.holds.force_open
        return force if force is not None and now_mono_s < force.until_mono_s else None


@dataclass(frozen=True, slots=True)
class Evaluated:
    """New evidence, or a tick: what the results mean for the engine, and where its process is."""

    judgement: Judgement
    engine: EngineStatus
    wall_s: float = 0.0
    #: The generation of its group that the engine's rank belongs to is over: it is to end.
    rank_over: bool = False


@dataclass(frozen=True, slots=True)
class HoldsLoaded:
    """The holds found on disk at start."""

    maintenance: Hold | None
    holds: EngineHolds


@dataclass(frozen=True, slots=True)
class Drain:
    """An operator closes the gate and, after the grace, stops the engine."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Resume:
    """An operator ends a drain."""


@dataclass(frozen=True, slots=True)
class Clear:
    """An operator has dealt with it: quarantine, force-open, sticky verdicts, crashes are forgotten."""


@dataclass(frozen=True, slots=True)
class Restart:
    """An operator restarts the engine through a drain."""

    reason: str


@dataclass(frozen=True, slots=True)
class OpenByForce:
    """Break-glass."""

    force: ForceOpen


@dataclass(frozen=True, slots=True)
class EnterMaintenance:
    """An operator takes the node out of service."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class ExitMaintenance:
    """An operator gives the node back."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The agent is going to end."""


OperatorEvent = Drain | Resume | Clear | Restart | OpenByForce | EnterMaintenance | ExitMaintenance
GateEvent = Evaluated | HoldsLoaded | OperatorEvent | Shutdown


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Ask the controller to start the engine; asked again at each evaluation until it does."""


@dataclass(frozen=True, slots=True)
class StopEngine:
    """Ask the controller to stop the engine; the gate has already waited for the load balancers."""

    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ForgetFaults:
    """Ask the runner to forget these sticky verdicts (check, subject), the controller to forget crashes."""

    faults: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SaveHolds:
    """The record's holds have changed and belong on disk."""


GateAction = StartEngine | StopEngine | ForgetFaults | SaveHolds
