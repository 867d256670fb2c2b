"""engine.health: does the engine really answer? Its process, its /health and, above all, a canary completion.

/health of vLLM answers 200 while EngineCore hangs, and a busy engine times out although it lives: so the
canary, judged by its content and by the progress of the token counters, has the last word. None is sent
while tokens move by themselves; one in a while is, so that the text is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import Field

from agent.checks.registry import Limits, check, each
from agent.errors import ParseError, SourceUnavailable
from agent.model import (
    NO_ACTION,
    Action,
    ActionKind,
    Basis,
    EnginePhase,
    Finding,
    Phase,
    ServingClass,
    Verdict,
    engine_of,
)
from agent.node_profile import Engine, Mode, NodeProfile
from agent.sources import CanaryReport, CanaryVerdict, EngineObservation, Sources

_RESTART = Action(
    ActionKind.RESTART_ENGINE,
    "Read `nodegate engine logs`; the agent restarts it if no hold is set, or `nodegate engine restart`.",
)
_OWN_LOG = Action(
    ActionKind.RESTART_ENGINE, "Read the engine's own log and restart it: the agent does not run it."
)
_REBOOT = Action(ActionKind.REBOOT, "Reboot the node: a process of the engine survived SIGKILL.")
_BUSY = Action(hint="Wait: it works on long requests; limit its load if canaries stay without an answer.")
_ODD = Action(
    hint="Ask the engine by hand and read its text; with canary.expect_text a wrong one closes the gate."
)
_WORDS = {
    EnginePhase.ABSENT: "no engine process",
    EnginePhase.EXITED: "engine has ended",
    EnginePhase.BACKOFF: "engine crashed and waits before its next start",
    EnginePhase.CRASHLOOP: "engine has crashed too often",
    EnginePhase.UNKILLABLE: "a process of the engine survived SIGKILL",
}
_ALIVE = (CanaryVerdict.OK, CanaryVerdict.ODD, CanaryVerdict.MOVING, CanaryVerdict.BUSY)
_RUNNING = frozenset({EnginePhase.UP, EnginePhase.WARM})


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a canary's verdict means; `key` is the part of the profile's canary that it rests on."""

    verdict: Verdict
    text: str
    key: str = "deadline_s"
    action: Action = NO_ACTION


_JUDGED = {
    CanaryVerdict.OK: _Judged(Verdict.PASS, "canary answered in {took}"),
    CanaryVerdict.MOVING: _Judged(Verdict.PASS, "no canary needed", "busy_period_s"),
    CanaryVerdict.ODD: _Judged(
        Verdict.WARN, "canary answered in {took} with a text that looks like garbage", "expect_text", _ODD
    ),
    CanaryVerdict.BUSY: _Judged(
        Verdict.WARN, "canary got no answer in {took} but tokens move: busy", action=_BUSY
    ),
    CanaryVerdict.DEAD: _Judged(
        Verdict.FAIL, "canary got no answer in {took} and no token moved", action=_RESTART
    ),
    CanaryVerdict.WRONG: _Judged(
        Verdict.FAIL, "canary got a wrong answer after {took}", "expect_text", _RESTART
    ),
}
_STRANGE = _Judged(Verdict.FAIL, "canary ended in a way that is not known", action=_RESTART)
#: Clocks of one machine agree better than this; a report from further in the future is no evidence.
FUTURE_S = 1.0


class HealthLimits(Limits):
    """Tolerances of engine.health."""

    slack_s: float = Field(
        5.0,
        description="Seconds beyond canary period and deadline after which a canary is stale",
        ge=0,
        le=60,
    )


def _no_engine(profile: NodeProfile) -> str | None:
    if profile.mode is Mode.OBSERVE:
        return "mode observe watches no engine"
    return None if profile.engines else "the profile has no engines"


@check(
    "engine.health",
    title="Engine answers",
    source="process of the engine, GET /health, GET /metrics, canary completion",
    serving_class=ServingClass.IMMEDIATE,
    limits=HealthLimits,
    phases=(Phase.SERVING,),
    period_s=1.0,
    deadline_s=2.0,
    clear_for_s=0.0,
    unknown_for_s=0.0,
    waivable=False,
    triggers=("engine",),
    skip=_no_engine,
    action=_RESTART,
)
def engine_health(sources: Sources, profile: NodeProfile, limits: HealthLimits) -> Iterator[Finding]:
    """Each engine's process must run and its newest canary must have succeeded not long ago."""
    engines = [(f"engine:{name}", (name, engine)) for name, engine in profile.engines.items()]
    for finding in each(engines, lambda subject, item: _judge(subject, item[0], item[1], sources, limits)):
        action = _advice(finding, engine_of(finding.subject) or "", profile.mode)
        yield replace(finding, action=action)


def _advice(finding: Finding, name: str, mode: Mode) -> Action:
    """What to do, by the engine's name and by who runs it."""
    if finding.action is not _RESTART:
        return finding.action
    if mode is not Mode.MANAGE:
        return _OWN_LOG
    logs = f"Read `nodegate engine logs {name}`"
    if finding.observed == EnginePhase.CRASHLOOP.value:
        hint = f"{logs}, mend the cause, run `nodegate gate clear {name} --reason TEXT`."
    else:
        restart = f"`nodegate engine restart {name}`"
        hint = f"{logs}; the agent restarts it if no hold is set, or {restart}."
    return replace(_RESTART, hint=hint)


def _judge(subject: str, name: str, engine: Engine, sources: Sources, limits: HealthLimits) -> Finding:
    seen = sources.engines.observe(name)
    phase = seen.status.phase
    if phase not in _RUNNING:
        words = _WORDS.get(phase, f"engine is {phase.value}")
        why = f": {seen.status.reason}" if seen.status.reason else ""
        action = _REBOOT if phase is EnginePhase.UNKILLABLE else _RESTART
        basis = Basis.standard("a serving engine runs")
        return Finding(subject, Verdict.FAIL, f"{words}{why}", phase.value, "up", action=action, basis=basis)
    if engine.follows:
        text = "its processes run; the head of its group proves that it answers"
        return Finding(subject, Verdict.PASS, text, phase.value, "up")
    now_mono_s = sources.clock.mono_s()
    canary = seen.canary
    if _unhealthy_since(seen, canary):
        text, basis = "/health says that the engine is dead", Basis.standard("GET /health answers 200")
        return Finding(subject, Verdict.FAIL, text, "unhealthy", "ok", action=_RESTART, basis=basis)
    if canary is None:
        raise SourceUnavailable("no canary has ended yet")
    age_s = now_mono_s - canary.ended_mono_s
    oldest_s = engine.canary.period_s + engine.canary.deadline_s + limits.slack_s
    if not age_s >= -FUTURE_S:
        raise ParseError(f"the canary ended {-age_s:.1f} s in the future")
    if age_s > oldest_s:
        raise SourceUnavailable(
            f"the newest canary is {age_s:.0f} s old, at most {oldest_s:.0f} s is current"
        )
    return _judge_canary(subject, canary, f"engines.{name}.canary")


def _unhealthy_since(seen: EngineObservation, canary: CanaryReport | None) -> bool:
    """Whether /health failed and no canary has shown life since: the newer evidence counts."""
    if seen.health_ok is not False:
        return False
    alive = canary is not None and canary.verdict in _ALIVE
    if canary is None or not alive or seen.health_mono_s is None:
        return True
    return canary.ended_mono_s < seen.health_mono_s


def _judge_canary(subject: str, canary: CanaryReport, settings: str) -> Finding:
    """Judge the newest canary; `settings` is its part of the profile."""
    words = _JUDGED.get(canary.verdict, _STRANGE)
    basis = Basis.profile(f"{settings}.{words.key}")
    why = f": {canary.reason}" if canary.reason else ""
    summary = f"{words.text.format(took=f'{canary.latency_s:.2f} s')}{why}"
    return Finding(
        subject, words.verdict, summary, str(canary.verdict), "ok", action=words.action, basis=basis
    )
