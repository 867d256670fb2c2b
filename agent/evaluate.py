"""What the results mean for ONE engine, pure: what keeps its gate from opening, what closes or degrades it.

Fails closed: a check that has not reported, a result that is too old or from the future, and an engine that
the profile does not have all block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.checks.registry import Check
from agent.model import (
    NO_ACTION,
    WORST_FIRST,
    Action,
    Phase,
    Result,
    ServingClass,
    Snapshot,
    Verdict,
    engine_of,
    gpu_slot_of,
)
from agent.node_profile import Engine, NodeProfile

#: The check whose missing evidence closes a serving gate: nothing else says that the engine itself answers.
ENGINE_HEALTH = "engine.health"
#: Evidence newer than now by more than this many seconds was not read on this boot.
FUTURE_S = 1.0


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason, as it is shown to people and load balancers."""

    check: str
    subject: str
    verdict: Verdict
    summary: str
    action: Action = NO_ACTION


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
    concerned = [
        (checks[result.check], result)
        for result in snapshot.results.values()
        if result.check in checks and _concerns(result.subject, engine, settings)
    ]
    admission = [
        _blocker(result, _admission_verdict(result, now_mono_s))
        for check, result in concerned
        if _blocks_admission(check, result, now_mono_s)
    ]
    serving = _serving(concerned, engine, settings, checks, now_mono_s)
    return Judgement(
        admission_blockers=_worst_first(admission),
        immediate=_worst_first(serving[ServingClass.IMMEDIATE]),
        hard=_worst_first(serving[ServingClass.HARD]),
        soft=_worst_first(serving[ServingClass.SOFT]),
        missing=tuple(_missing(snapshot, engine, settings, checks)),
        info=_worst_first(serving[ServingClass.INFO]),
    )


def is_stale(result: Result, now_mono_s: float) -> bool:
    """Whether the evidence is too old to count, or claims to be from the future."""
    return result.age_s(now_mono_s) > result.valid_for_s or result.measured_mono_s > now_mono_s + FUTURE_S


def _concerns(subject: str, engine: str, settings: Engine) -> bool:
    """Whether a subject matters to this engine; the node and its NIC ports matter to all."""
    slot = gpu_slot_of(subject)
    if slot is not None:
        return slot in settings.gpus
    named = engine_of(subject)
    return named is None or named == engine


def _is_waived(check: Check, result: Result) -> bool:
    return result.waived and check.waivable


def _current(result: Result, now_mono_s: float) -> Verdict:
    """The confirmed verdict as it counts now. An old FAIL stays one: time heals nothing."""
    if result.verdict is not Verdict.FAIL and is_stale(result, now_mono_s):
        return Verdict.UNKNOWN
    return result.verdict


def _admission_verdict(result: Result, now_mono_s: float) -> Verdict:
    """The worse of verdict and last reading: hysteresis protects serving engines, it opens no gate."""
    return min(_current(result, now_mono_s), result.raw_verdict, key=WORST_FIRST.index)


def _blocks_admission(check: Check, result: Result, now_mono_s: float) -> bool:
    if Phase.ADMISSION not in check.phases or _is_waived(check, result):
        return False
    verdict = _admission_verdict(result, now_mono_s)
    return verdict is Verdict.FAIL or (verdict is Verdict.UNKNOWN and check.unknown_blocks_admission)


def _serving(
    concerned: list[tuple[Check, Result]],
    engine: str,
    settings: Engine,
    checks: Mapping[str, Check],
    now_mono_s: float,
) -> dict[ServingClass, list[Blocker]]:
    """What closes, degrades or merely informs while serving, by class."""
    by_class: dict[ServingClass, list[Blocker]] = {each: [] for each in ServingClass}
    for check, result in concerned:
        if Phase.SERVING not in check.phases or _is_waived(check, result):
            continue
        verdict = _current(result, now_mono_s)
        effect = _effect(check, result, verdict, settings)
        if effect is not None:
            by_class[effect].append(_blocker(result, verdict))
    subject = f"engine:{engine}"
    health = [result for check, result in concerned if check.id == ENGINE_HEALTH]
    spoken = any(result.subject == subject or result.verdict is Verdict.SKIP for result in health)
    if ENGINE_HEALTH in checks and not spoken:
        silent = Blocker(ENGINE_HEALTH, subject, Verdict.UNKNOWN, "nothing is known of the engine yet")
        by_class[ServingClass.IMMEDIATE].append(silent)
    return by_class


def _effect(check: Check, result: Result, verdict: Verdict, settings: Engine) -> ServingClass | None:
    """What one result does to a serving gate, None for nothing at all."""
    if verdict in (Verdict.PASS, Verdict.SKIP):
        return None
    if verdict is Verdict.WARN or (check.network and not settings.launch.rdma):
        return ServingClass.INFO
    if verdict is Verdict.FAIL:
        return result.serving_class
    if check.id == ENGINE_HEALTH:
        return ServingClass.IMMEDIATE
    closes = result.serving_class in (ServingClass.IMMEDIATE, ServingClass.HARD)
    return ServingClass.SOFT if closes else ServingClass.INFO


def _missing(snapshot: Snapshot, engine: str, settings: Engine, checks: Mapping[str, Check]) -> Iterator[str]:
    """Admission checks that have not reported on this engine: `check`, or `check gpu3` for one subject."""
    subjects: dict[str, set[str]] = {id_: set() for id_ in checks}
    for result in snapshot.results.values():
        if result.check in subjects:
            subjects[result.check].add(result.subject)
    for id_, check in sorted(checks.items()):
        if Phase.ADMISSION not in check.phases:
            continue
        reported = subjects[id_]
        if not reported:
            yield id_
            continue
        yield from (f"{id_} {subject}" for subject in _unreported(reported, engine, settings))


def _unreported(reported: set[str], engine: str, settings: Engine) -> list[str]:
    """Subjects of the engine that a check which judges each GPU or each engine has left out."""
    gpus = {subject for subject in reported if gpu_slot_of(subject) is not None}
    engines = {subject for subject in reported if engine_of(subject) is not None}
    if reported - gpus - engines:
        return []  # it has spoken for the whole node
    slots = {gpu_slot_of(subject) for subject in gpus}
    left_out = [f"gpu{slot}" for slot in settings.gpus if slot not in slots] if gpus else []
    if engines and not gpus and f"engine:{engine}" not in engines:
        left_out.append(f"engine:{engine}")
    return left_out


def _blocker(result: Result, verdict: Verdict) -> Blocker:
    finding = result.finding
    summary = finding.summary
    if verdict is Verdict.UNKNOWN and Verdict.UNKNOWN not in (result.verdict, result.raw_verdict):
        summary = f"no fresh evidence; last: {summary}"
    return Blocker(result.check, result.subject, verdict, summary, finding.action)


def _worst_first(blockers: list[Blocker]) -> tuple[Blocker, ...]:
    return tuple(sorted(blockers, key=lambda b: (WORST_FIRST.index(b.verdict), b.check, b.subject)))
