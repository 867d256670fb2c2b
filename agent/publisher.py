"""The published answer: immutable, swapped whole by the main loop, read by HTTP and agent-check handlers
elsewhere.

Whoever answers computes the answer's age at that moment. One older than `api.max_age_s` reads as not ready,
so a main loop that hangs, or a process that was stopped and goes on, cannot let traffic in on old evidence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.blockers import blocker_to_dict
from agent.explain import Explainer
from agent.gate_record import GateRecord
from agent.group.answer import GroupAnswer
from agent.holds import Holds
from agent.model import GateState, Snapshot
from agent.node_profile import Mode, NodeProfile
from agent.recent_changes import NO_CHANGES, Changes
from agent.recent_history import NO_HISTORY, History

if TYPE_CHECKING:
    from agent.pairs import PairAnswer

#: The main loop beats at least every second; without a beat for this long it is not alive.
LIVE_WITHIN_S = 5.0
OBSERVE = "observe"
#: Bodies end with a line break: a person's `curl` shows them on a line of their own.
_OK = b"ok\n"
_HEADER_CHARS = 200
_FAIL_AT_ONCE = ("x-envoy-immediate-health-check-fail", "true")
_DEGRADED = ("x-envoy-degraded", "true")
_FORCED = "x-nodegate-forced-open"
_SIMULATED = ("x-nodegate-simulated", "true")
#: For the answer of a whole node: the state shown is the first of these that any engine is in.
_WORST_STATES = (
    "quarantined",
    "maintenance",
    "failed",
    "draining",
    "stopped",
    OBSERVE,
    "booting",
    "preflight",
    "launching",
    "warming",
    "member",
)


def boottime_s() -> float:
    """CLOCK_BOOTTIME: goes on while a process or the machine sleeps, so that an age is never too small."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one gate answers, but for its age."""

    engine: str
    state: str
    ready: bool
    reason: str
    blocking: tuple[dict[str, Any], ...]
    agent_line: str
    forced: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is the same for a daemon's life, or for a profile's."""

    node: str
    boot_id: str
    simulated: bool
    mode: Mode
    profile_hash: str
    max_age_s: float


@dataclass(frozen=True, slots=True)
class Publication:
    """All that is told over HTTP, as of `mono_s` (CLOCK_BOOTTIME); `gate_mono_s` is on the gates' clock."""

    mono_s: float
    gate_mono_s: float
    facts: NodeFacts
    answers: Mapping[str, Answer]
    records: Mapping[str, GateRecord]
    holds: Holds
    snapshot: Snapshot | None = None
    durations_s: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    journal_healthy: bool | None = None
    explainer: Explainer | None = None
    groups: Mapping[str, GroupAnswer] = field(default_factory=dict)
    pairs: Mapping[str, PairAnswer] = field(default_factory=dict)
    history: History = NO_HISTORY
    changes: Changes = NO_CHANGES
    checklist: Mapping[str, Any] | None = None

    def answer(self, name: str) -> Answer | None:
        """The answer of an engine or a pair; no pair has the name of an engine."""
        pair = self.pairs.get(name)
        return self.answers.get(name) if pair is None else pair.answer


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: bytes
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class Publisher:
    """Holds the newest publication. `publish` and `beat` belong to the main loop, all else to any thread."""

    def __init__(self, clock: Callable[[], float] = boottime_s) -> None:
        """Start with nothing published: not alive, not ready."""
        self.clock = clock
        self.current: Publication | None = None
        self._beat_s: float | None = None
        #: By engine (None: all together) the 200 of a publication, which holds for as long as it is fresh.
        self._open: dict[str | None, tuple[Publication, Reply]] = {}

    def publish(self, publication: Publication) -> None:
        """Swap the publication."""
        self.current = publication

    def beat(self) -> None:
        """The main loop is alive."""
        self._beat_s = self.clock()

    def beat_age_s(self) -> float | None:
        """Seconds since the last beat, None before the first."""
        return None if self._beat_s is None else self.clock() - self._beat_s

    def live(self) -> Reply:
        """The answer of /livez."""
        age_s = self.beat_age_s()
        if age_s is not None and age_s < LIVE_WITHIN_S:
            return Reply(200, _OK, "text/plain")
        text = "has not begun" if age_s is None else f"has not beaten for {age_s:.1f} s"
        return Reply(503, _json({"live": False, "summary": f"the main loop {text}"}))

    def ready(self, engine: str | None = None) -> Reply:
        """The answer of /readyz (every engine), /readyz/ENGINE and /readyz/PAIR."""
        current = self.current
        if current is None:
            return _not_ready("booting", None, (blocking_item("nothing has been published yet"),))
        age_s = self.clock() - current.mono_s
        of, reply = self._open.get(engine, (None, None))
        if reply is not None and of is current and not _stale(age_s, current.facts.max_age_s):
            return reply
        reply = self._ready(current, engine, age_s)
        if reply.status == 200:
            self._open[engine] = current, reply
        return reply

    def _ready(self, current: Publication, engine: str | None, age_s: float) -> Reply:
        one = None if engine is None else current.answer(engine)
        if engine is not None and one is None:
            known: dict[str, Any] = {"engines": sorted(current.answers)}
            known |= {"pairs": sorted(current.pairs)} if current.pairs else {}
            return Reply(404, _json({"error": f"there is no engine {engine!r}", **known}))
        answers = (one,) if one is not None else tuple(current.answers.values())
        reply = _together(answers, age_s, current.facts)
        if current.facts.simulated:
            reply = replace(reply, headers={**reply.headers, _SIMULATED[0]: _SIMULATED[1]})
        return reply

    def agent_line(self, engine: str) -> str:
        """The line of the agent check of an engine or a pair, without its line break."""
        current = self.current
        answer = current.answer(engine) if current else None
        if current is None or answer is None:
            return "down #booting"
        if answer.ready and _stale(self.clock() - current.mono_s, current.facts.max_age_s):
            return "down #stale"
        return answer.agent_line


def answers_of(
    records: Mapping[str, GateRecord], profile: NodeProfile, explainer: Explainer | None = None
) -> dict[str, Answer]:
    """The answers of all gates, with what is known of each reason against them."""
    return {
        name: _answer(record, profile.engines[name].gate.degraded_weight_percent, explainer)
        for name, record in records.items()
    }


def _together(answers: tuple[Answer, ...], age_s: float, facts: NodeFacts) -> Reply:
    """The reply for some engines: 200 only if there is one, all are ready and the answer is fresh."""
    if not answers:
        state = OBSERVE if facts.mode is Mode.OBSERVE else GateState.STOPPED.value
        return _not_ready(state, age_s, (blocking_item("the profile has no engines: nothing can be ready"),))
    stale = _stale(age_s, facts.max_age_s)
    closed = tuple(answer for answer in answers if not answer.ready)
    if closed or stale:
        blocking = (*stale, *(item for answer in closed for item in answer.blocking))
        return _not_ready(worst_state(closed or answers), age_s, blocking)
    return Reply(200, _OK, "text/plain", _open_headers(answers))


def _answer(record: GateRecord, degraded_percent: int, explainer: Explainer | None) -> Answer:
    """The answer of one gate, after the state table of the interface."""
    observing = record.config.mode is Mode.OBSERVE
    shown = () if record.ready and not record.forced else record.blockers
    blocking = tuple(blocker_to_dict(blocker, explainer) for blocker in shown)
    if observing:
        blocking = (blocking_item(record.reason, "gate.mode"), *blocking)
    elif not blocking:
        blocking = (blocking_item(record.reason, f"gate.{record.state}", f"engine:{record.config.engine}"),)
    force = record.holds.force_open
    return Answer(
        engine=record.config.engine,
        state=OBSERVE if observing else record.state.value,
        ready=record.ready,
        reason=record.reason,
        blocking=() if record.ready and not record.forced else blocking,
        agent_line=_agent_line(record, degraded_percent),
        forced=_ascii(f"until={force.until_wall_s:.0f} {force.reason}") if force and record.forced else "",
    )


def _agent_line(record: GateRecord, degraded_percent: int) -> str:
    """HAProxy's words; what follows `#` is a description."""
    match record.state:
        case GateState.SERVING:
            return "up ready 100%"
        case GateState.DEGRADED:
            return f"up ready {degraded_percent}%{' #FORCED-OPEN' if record.forced else ''}"
        case GateState.DRAINING:
            return "drain"
        case GateState.MAINTENANCE:
            return "maint"
        case GateState.FAILED | GateState.QUARANTINED if record.blockers:
            return f"down #{_ascii(record.blockers[0].check)}"
        case state:
            return f"down #{state}"


def _open_headers(answers: tuple[Answer, ...]) -> dict[str, str]:
    """What proxies are told of an open gate."""
    headers: dict[str, str] = {}
    if any(answer.state == GateState.DEGRADED for answer in answers):
        headers[_DEGRADED[0]] = _DEGRADED[1]
    forced = next((answer.forced for answer in answers if answer.forced), "")
    if forced:
        headers[_FORCED] = forced
    return headers


def _not_ready(state: str, age_s: float | None, blocking: tuple[dict[str, Any], ...]) -> Reply:
    """503 with the reasons."""
    body = {
        "ready": False,
        "state": state,
        "age_s": None if age_s is None else round(age_s, 3),
        "blocking": list(blocking),
    }
    return Reply(503, _json(body), headers=dict([_FAIL_AT_ONCE]))


def _stale(age_s: float, max_age_s: float) -> tuple[dict[str, Any], ...]:
    """The reason against an answer that is too old, or from the future."""
    if -1.0 <= age_s <= max_age_s:
        return ()
    text = f"the answer is {age_s:.0f} s old, {max_age_s:g} s is the most"
    return (blocking_item(text, "gate.age"),)


def worst_state(answers: tuple[Answer, ...]) -> str:
    """The state to show for several gates."""
    states = {answer.state for answer in answers}
    return next((state for state in _WORST_STATES if state in states), answers[0].state)


def blocking_item(summary: str, check: str = "gate", subject: str = "node") -> dict[str, Any]:
    """A reason that is not a check's."""
    action = {"kind": "none", "hint": "", "play": None}
    return {"check": check, "subject": subject, "summary": summary, "action": action}


def _ascii(text: str) -> str:
    """Printable ASCII in one line: what may stand in a header or an agent-check line."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:_HEADER_CHARS].strip()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(", ", ": ")).encode() + b"\n"
