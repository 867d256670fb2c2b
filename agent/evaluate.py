"""What the results mean for ONE engine, pure: what keeps its gate from opening, what closes or degrades it.

Fails closed: a check that has not reported, a result that is too old or from the future, and an engine that
the profile does not have all block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from agent.checks.registry import Check
from agent.effect import (
    ENGINE_HEALTH,
    FUTURE_S,
    GOOD,
    admission_verdict,
    blocks_admission,
    bridges_relaunch,
    concerns,
    current,
    is_shadow,
    is_stale,
    serving_effect,
)
from agent.model import (
    NO_ACTION,
    WORST_FIRST,
    Action,
    Phase,
    Result,
    ResultKey,
    ServingClass,
    Snapshot,
    Verdict,
    engine_of,
    gpu_slot_of,
)
from agent.node_profile import NodeProfile

__all__ = ["Blocker", "Judgement", "is_stale", "judge"]


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason, as it is shown to people and load balancers."""

    check: str
    subject: str
    verdict: Verdict
    summary: str
    action: Action = NO_ACTION
    #: What it rests on, for whoever explains it; a reason that is no check's has none.
    result: Result | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Reasons by what they do, each worst first. `missing` are admission checks without a result.

    `info` is worth telling and changes nothing.
    """

    admission_blockers: tuple[Blocker, ...] = ()
    immediate: tuple[Blocker, ...] = ()
    hard: tuple[Blocker, ...] = ()
    soft: tuple[Blocker, ...] = ()
    missing: tuple[str, ...] = ()
    info: tuple[Blocker, ...] = ()
    #: Those of the admission blockers that do not keep a crashed engine from coming back.
    bridged: frozenset[ResultKey] = frozenset()

    @property
    def admits(self) -> bool:
        """Whether the gate may open: nothing blocks and nothing is missing."""
        return not self.admission_blockers and not self.missing


def judge(
    snapshot: Snapshot, profile: NodeProfile, engine: str, checks: Mapping[str, Check], now_mono_s: float
) -> Judgement:
    """Judge the snapshot for one engine at `now_mono_s` (monotonic seconds)."""
    settings = profile.engines.get(engine)
    if settings is None:
        text = f"engine {engine} is not in the profile"
        return Judgement((Blocker("profile", f"engine:{engine}", Verdict.UNKNOWN, text),))
    shadowed = frozenset(id_ for id_ in checks if is_shadow(profile, id_))
    admission: list[Blocker] = []
    bridged: set[ResultKey] = set()
    serving: dict[ServingClass, list[Blocker]] = {each: [] for each in ServingClass}
    for result in snapshot.results.values():
        # Most results are good and fresh, every time: what follows would find nothing in them. (The age as
        # in is_stale, without its thousand calls.)
        age_s = now_mono_s - result.measured_mono_s
        fresh = -FUTURE_S <= age_s <= result.valid_for_s
        if fresh and result.verdict in GOOD and result.raw_verdict in GOOD:
            continue
        check = checks.get(result.check)
        if check is None or not concerns(result.subject, engine, settings):
            continue
        shadow = check.id in shadowed
        if blocks_admission(check, result, now_mono_s, shadow=shadow):
            admission.append(_blocker(result, admission_verdict(result, now_mono_s)))
            if bridges_relaunch(check, result, settings, now_mono_s):
                bridged.add((result.check, result.subject))
        effect = serving_effect(check, result, settings, now_mono_s, shadow=shadow)
        if effect is not None:
            serving[effect].append(_blocker(result, current(result, now_mono_s)))
    if ENGINE_HEALTH not in shadowed and (silent := _silent_engine(snapshot, engine, checks)):
        serving[ServingClass.IMMEDIATE].append(silent)
    return Judgement(
        admission_blockers=_worst_first(admission),
        immediate=_worst_first(serving[ServingClass.IMMEDIATE]),
        hard=_worst_first(serving[ServingClass.HARD]),
        soft=_worst_first(serving[ServingClass.SOFT]),
        missing=_missing(
            frozenset(snapshot.results), engine, tuple(settings.gpus), _admitting(checks, shadowed)
        ),
        info=_worst_first(serving[ServingClass.INFO]),
        bridged=frozenset(bridged),
    )


def _admitting(checks: Mapping[str, Check], shadowed: frozenset[str]) -> tuple[str, ...]:
    """The checks that must have run before a gate opens, in order."""
    return tuple(
        id_
        for id_, check in sorted(checks.items())
        if Phase.ADMISSION in check.phases and id_ not in shadowed
    )


def _silent_engine(snapshot: Snapshot, engine: str, checks: Mapping[str, Check]) -> Blocker | None:
    """The reason against an engine of which nothing is known yet."""
    if ENGINE_HEALTH not in checks:
        return None
    subject = f"engine:{engine}"
    if (ENGINE_HEALTH, subject) in snapshot.results:
        return None
    node = snapshot.results.get((ENGINE_HEALTH, "node"))
    if node is not None and node.verdict is Verdict.SKIP:
        return None
    return Blocker(ENGINE_HEALTH, subject, Verdict.UNKNOWN, "nothing is known of the engine yet")


@lru_cache(maxsize=64)
def _missing(
    reported: frozenset[ResultKey], engine: str, gpus: tuple[int, ...], admitting: tuple[str, ...]
) -> tuple[str, ...]:
    """Admission checks that have not reported on this engine: `check`, or `check gpu3` for one subject."""
    subjects: dict[str, set[str]] = {id_: set() for id_ in admitting}
    for check, subject in reported:
        if check in subjects:
            subjects[check].add(subject)
    missing: list[str] = []
    for id_, known in subjects.items():
        if known:
            missing += (f"{id_} {subject}" for subject in _unreported(known, engine, gpus))
        else:
            missing.append(id_)
    return tuple(missing)


def _unreported(reported: set[str], engine: str, gpus: tuple[int, ...]) -> list[str]:
    """Subjects of the engine that a check which judges each GPU or each engine has left out."""
    of_gpus = {subject for subject in reported if gpu_slot_of(subject) is not None}
    engines = {subject for subject in reported if engine_of(subject) is not None}
    if reported - of_gpus - engines:
        return []  # it has spoken for the whole node
    slots = {gpu_slot_of(subject) for subject in of_gpus}
    left_out = [f"gpu{slot}" for slot in gpus if slot not in slots] if of_gpus else []
    if engines and not of_gpus and f"engine:{engine}" not in engines:
        left_out.append(f"engine:{engine}")
    return left_out


def _blocker(result: Result, verdict: Verdict) -> Blocker:
    finding = result.finding
    summary = finding.summary
    if verdict is Verdict.UNKNOWN and Verdict.UNKNOWN not in (result.verdict, result.raw_verdict):
        summary = f"no fresh evidence; last: {summary}"
    return Blocker(result.check, result.subject, verdict, summary, finding.action, result)


def _worst_first(blockers: list[Blocker]) -> tuple[Blocker, ...]:
    return tuple(sorted(blockers, key=lambda b: (WORST_FIRST.index(b.verdict), b.check, b.subject)))
