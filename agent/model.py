"""Core types that travel the one-way flow: Finding, Result, Snapshot. All frozen; units in names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from agent.engine_evidence import SoakResult, WarmupCurve

Scalar = str | int | float | bool | None


class Verdict(StrEnum):
    """What is known of one subject; order of badness is in `WORST_FIRST`."""

    PASS = "PASS"  # noqa: S105
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    SKIP = "SKIP"


WORST_FIRST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS, Verdict.SKIP)


def worst(verdicts: list[Verdict]) -> Verdict:
    """The worst of some verdicts; UNKNOWN for none at all, because no evidence is not a PASS."""
    return min(verdicts, key=WORST_FIRST.index) if verdicts else Verdict.UNKNOWN


class Phase(StrEnum):
    """When a check counts."""

    ADMISSION = "admission"
    SERVING = "serving"
    MAINTENANCE = "maintenance"


class ServingClass(StrEnum):
    """What a confirmed FAIL does to a serving gate: close at once, close after fail_for, degrade, tell."""

    IMMEDIATE = "immediate"
    HARD = "hard"
    SOFT = "soft"
    INFO = "info"


class ActionKind(StrEnum):
    """What a person (or, for its own engine, the agent) should do about a finding."""

    NONE = "none"
    APPLY_PLAY = "apply_play"
    RESTART_ENGINE = "restart_engine"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    RESEAT_OR_REPLACE = "reseat_or_replace"
    CONTACT_SUPPORT = "contact_support"


@dataclass(frozen=True, slots=True)
class Action:
    """Advice: `hint` is one imperative sentence, to be followed by hand.

    `play` is a tag reserved for provisioning, which is not built yet; only kind APPLY_PLAY has one.
    """

    kind: ActionKind = ActionKind.NONE
    hint: str = ""
    play: str | None = None


NO_ACTION = Action()


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a check read on its way, for dashboards: `name` is one of metrics.py, less its prefix.

    `kind` tells several of one name and subject apart (`replay`, `crc`); `counter` is the driver's own name.
    """

    name: str
    value: float
    kind: str = ""
    counter: str = ""


class BasisKind(StrEnum):
    """Where the number or state that a finding expected comes from."""

    DEVICE = "device"  # the device itself states it (a T.Limit offset, a maximum link width)
    PROFILE = "profile"  # desired state: a key of the node profile
    LIMIT = "limit"  # a tolerance of the check: its field in Limits
    STANDARD = "standard"  # a table that nodegate ships (Xid classes, link generations)


@dataclass(frozen=True, slots=True)
class Basis:
    """Where `expected` comes from; `key` is a profile path, the field of the check's Limits, or the name."""

    kind: BasisKind
    key: str

    @classmethod
    def device(cls, name: str) -> Basis:
        """The device states it: `name` is what it is called there."""
        return cls(BasisKind.DEVICE, name)

    @classmethod
    def profile(cls, key: str) -> Basis:
        """A key of the profile, dots between parts: `gpus.power_limit_w`."""
        return cls(BasisKind.PROFILE, key)

    @classmethod
    def limit(cls, field_name: str) -> Basis:
        """A field of the check's own Limits."""
        return cls(BasisKind.LIMIT, field_name)

    @classmethod
    def standard(cls, name: str) -> Basis:
        """A table or rule that nodegate ships, by name."""
        return cls(BasisKind.STANDARD, name)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check says of one subject (`gpu3`, `mlx5_0/1`, `node`, `engine:glm`)."""

    subject: str
    verdict: Verdict
    summary: str
    observed: Scalar = None
    expected: Scalar = None
    unit: str = ""
    action: Action = NO_ACTION
    #: Overrides the check's serving class for this finding (a fatal Xid is immediate, an app Xid is info).
    serving_class: ServingClass | None = None
    measures: tuple[Measure, ...] = ()
    #: Where `expected` comes from; every WARN and FAIL has one.
    basis: Basis | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A finding with its check and times; the unit of the snapshot, the journal and the API.

    `verdict` is the confirmed one (after fail_for, clear_for, unknown_for); `raw_verdict` is the last
    reading's.
    `measured_mono_s` is when the evidence was read; `first_seen_s` (wall clock) is when this verdict began.
    """

    check: str
    finding: Finding
    verdict: Verdict
    raw_verdict: Verdict
    serving_class: ServingClass
    measured_mono_s: float
    first_seen_s: float
    valid_for_s: float
    carried: bool = False
    waived: bool = False
    #: The profile runs this check in shadow: its verdict is shown and gates nothing.
    shadow: bool = False
    #: How often a FAIL of it has been confirmed on this boot, the current one included.
    times: int = 0
    #: The part that the subject was at this reading: a GPU's UUID, a NIC's serial; empty if none is known.
    part: str = ""
    #: Of the last reading, also while `finding` is an earlier one that is held; not kept in the journal.
    measures: tuple[Measure, ...] = ()

    @property
    def subject(self) -> str:
        """The subject of the finding."""
        return self.finding.subject

    def age_s(self, now_mono_s: float) -> float:
        """Seconds since the evidence was read."""
        return max(0.0, now_mono_s - self.measured_mono_s)


ResultKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All current results of a node at one moment; swapped whole, never changed."""

    node: str
    profile_hash: str
    simulated: bool
    boot_id: str
    mono_s: float
    wall_s: float
    results: Mapping[ResultKey, Result] = field(default_factory=dict)


class EnginePhase(StrEnum):
    """Where one engine's process is; events and transitions are in launch/engine_state.py."""

    ABSENT = "absent"  # nothing runs, may be started
    STARTING = "starting"  # process started, HTTP not yet healthy
    UP = "up"  # HTTP healthy, warm-up not yet passed
    WARM = "warm"  # warm-up passed, may take traffic
    STOPPING = "stopping"
    EXITED = "exited"  # ended without being asked; clean-up is running
    BACKOFF = "backoff"  # cleaned up, waiting before it may be started again
    CRASHLOOP = "crashloop"  # too many crashes: an operator's word is needed
    UNKILLABLE = "unkillable"  # a process survived SIGKILL: reboot


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The supervisor's word on one engine; `reason` says why it is in this phase."""

    name: str
    phase: EnginePhase
    since_mono_s: float
    reason: str = ""
    pid: int | None = None
    restarts: int = 0
    retry_at_mono_s: float | None = None
    #: What its warm-up and its soak have shown; None before, and for an engine that is gone.
    warmup: WarmupCurve | None = None
    soak: SoakResult | None = None


class GateState(StrEnum):
    """The gate's states; HTTP code and agent-check word of each are in INTERFACES (docs/architecture.md)."""

    BOOTING = "booting"
    PREFLIGHT = "preflight"
    LAUNCHING = "launching"
    WARMING = "warming"
    SERVING = "serving"
    DEGRADED = "degraded"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    MAINTENANCE = "maintenance"
    MEMBER = "member"  # a rank that serves through its group's head and is never ready itself


_GPU_SUBJECT = re.compile(r"^gpu(\d+)(?:/|$)")
_ENGINE_SUBJECT = re.compile(r"^engine:(.+)$")


@lru_cache(maxsize=8192)
def gpu_slot_of(subject: str) -> int | None:
    """The GPU slot that a subject belongs to (`gpu3`, `gpu3/link5` -> 3), None for other subjects."""
    match = _GPU_SUBJECT.match(subject)
    return int(match.group(1)) if match else None


@lru_cache(maxsize=8192)
def engine_of(subject: str) -> str | None:
    """The engine that a subject names (`engine:glm` -> `glm`), None for other subjects."""
    match = _ENGINE_SUBJECT.match(subject)
    return match.group(1) if match else None
