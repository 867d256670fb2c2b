"""What ONE result does to ONE engine's gate, pure: shared by the judgement and by what explains it."""

from __future__ import annotations

from dataclasses import dataclass

from agent.checks.registry import Check
from agent.model import (
    WORST_FIRST,
    Phase,
    Result,
    ServingClass,
    Verdict,
    engine_of,
    gpu_slot_of,
)
from agent.node_profile import Engine, NodeProfile

#: The check whose missing evidence closes a serving gate: nothing else says that the engine itself answers.
ENGINE_HEALTH = "engine.health"
#: Evidence newer than now by more than this many seconds was not read on this boot.
FUTURE_S = 1.0

#: What stands against nothing.
GOOD = (Verdict.PASS, Verdict.SKIP)


@dataclass(frozen=True, slots=True)
class Effect:
    """On one engine: the class with which it counts while serving (None: not at all), and at admission."""

    engine: str
    serving: ServingClass | None
    blocks_admission: bool


def effects(
    result: Result, check: Check, profile: NodeProfile, now_mono_s: float | None = None
) -> tuple[Effect, ...]:
    """What a result does to each engine that it concerns; by default as of when it was measured."""
    at_s = result.measured_mono_s if now_mono_s is None else now_mono_s
    shadow = is_shadow(profile, check.id)
    return tuple(
        Effect(
            name,
            serving_effect(check, result, settings, at_s, shadow=shadow),
            blocks_admission(check, result, at_s, shadow=shadow),
        )
        for name, settings in profile.engines.items()
        if concerns(result.subject, name, settings)
    )


def is_shadow(profile: NodeProfile, check_id: str) -> bool:
    """Whether the profile in force runs the check in shadow."""
    override = profile.checks.get(check_id)
    return override is not None and override.shadow


def is_stale(result: Result, now_mono_s: float) -> bool:
    """Whether the evidence is too old to count, or claims to be from the future."""
    age_s = now_mono_s - result.measured_mono_s
    return age_s > result.valid_for_s or age_s < -FUTURE_S


def concerns(subject: str, engine: str, settings: Engine) -> bool:
    """Whether a subject matters to this engine; the node and its NIC ports matter to all."""
    slot = gpu_slot_of(subject)
    if slot is not None:
        return slot in settings.gpus
    named = engine_of(subject)
    return named is None or named == engine


def is_waived(check: Check, result: Result) -> bool:
    """Whether a waiver covers the result; some checks cannot be waived."""
    return result.waived and check.waivable


def current(result: Result, now_mono_s: float) -> Verdict:
    """The confirmed verdict as it counts now. An old FAIL stays one: time heals nothing."""
    if result.verdict is not Verdict.FAIL and is_stale(result, now_mono_s):
        return Verdict.UNKNOWN
    return result.verdict


def admission_verdict(result: Result, now_mono_s: float) -> Verdict:
    """The worse of verdict and last reading: hysteresis protects serving engines, it opens no gate."""
    return min(current(result, now_mono_s), result.raw_verdict, key=WORST_FIRST.index)


def blocks_admission(check: Check, result: Result, now_mono_s: float, *, shadow: bool) -> bool:
    """Whether the result keeps a closed gate closed."""
    if shadow or Phase.ADMISSION not in check.phases or is_waived(check, result):
        return False
    verdict = admission_verdict(result, now_mono_s)
    return verdict is Verdict.FAIL or (verdict is Verdict.UNKNOWN and check.unknown_blocks_admission)


def bridges_relaunch(check: Check, result: Result, settings: Engine, now_mono_s: float) -> bool:
    """Whether an engine that crashed behind an open gate may come back although this blocks admission.

    A gate that serves with a soft fault must not become an outage because its engine crashed meanwhile: soft
    faults touch a whole row at once. The same for an evidence gap that a serving gate would still bridge.
    What a start rests on (memory of the GPUs, weights, kernel modules) is never left out.
    """
    if Phase.SERVING not in check.phases or check.needed_to_start:
        return False
    if result.serving_class in (ServingClass.SOFT, ServingClass.INFO):
        return True
    if check.network and not settings.launch.rdma:  # it would not have closed this engine's gate either
        return True
    return result.raw_verdict is Verdict.UNKNOWN and current(result, now_mono_s) in GOOD


def serving_effect(
    check: Check, result: Result, settings: Engine, now_mono_s: float, *, shadow: bool
) -> ServingClass | None:
    """What the result does to a serving gate, None for nothing at all."""
    if Phase.SERVING not in check.phases or is_waived(check, result):
        return None
    verdict = current(result, now_mono_s)
    if verdict in GOOD:
        return None
    if shadow or verdict is Verdict.WARN or (check.network and not settings.launch.rdma):
        return ServingClass.INFO
    if verdict is Verdict.FAIL:
        return result.serving_class
    if check.id == ENGINE_HEALTH:
        return ServingClass.IMMEDIATE
    if not check.unknown_blocks_admission:
        return ServingClass.INFO  # evidence that may be out of reach (a BMC) neither closes nor degrades
    closes = result.serving_class in (ServingClass.IMMEDIATE, ServingClass.HARD)
    return ServingClass.SOFT if closes else ServingClass.INFO
