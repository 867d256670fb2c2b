"""One card for each engine: its state, since when, why, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.model import GateState
from agent.page.advice import STALE, steps
from agent.page.spark import Curve, Look, curve
from agent.page.words import BAD, GOOD, MARKS, SOFT, TONE_OF_STATE, WAIT, Tone, clock, cut, lasted, number
from agent.recent_history import TOKENS, SeriesKey
from agent.rows import merge, subjects

MOST_REASONS = 6
_TOKENS_LOOK = Look("tokens per second", "1/s", 10.0)


@dataclass(frozen=True, slots=True)
class Card:
    """One engine. `word` is what is read from across the room; `reasons` are (check, subjects, summary)."""

    name: str
    tone: Tone
    word: str
    state: str
    since: str
    why: str
    todo: Sequence[str]
    reasons: Sequence[tuple[str, str, str]]
    more_reasons: int
    facts: Sequence[tuple[str, str]]
    tokens: Curve | None
    tokens_now: str
    group: Mapping[str, Any] | None

    @property
    def mark(self) -> str:
        """The sign beside the word."""
        return MARKS[self.tone]


def cards(
    status: Mapping[str, Any],
    series: Mapping[SeriesKey, list[float | None]],
    times_s: Sequence[float],
    now_wall_s: float,
    stale: bool,
) -> list[Card]:
    """The cards of all engines; with `stale` evidence none of them says ready."""
    return [_card(gate, status, series, times_s, now_wall_s, stale) for gate in status["gates"]]


def _card(
    gate: Mapping[str, Any],
    status: Mapping[str, Any],
    series: Mapping[SeriesKey, list[float | None]],
    times_s: Sequence[float],
    now_wall_s: float,
    stale: bool,
) -> Card:
    tone, word = _headline(gate, status, stale)
    reasons = [] if stale else _reasons(gate["blocking"])
    values = series.get((TOKENS, f"engine:{gate['engine']}"), [])
    newest = values[-1] if values else None
    since = f"for {lasted(gate['since_s'])}, since {clock(now_wall_s - gate['since_s'], now_wall_s)} UTC"
    return Card(
        name=gate["engine"],
        tone=tone,
        word=word,
        state="stale" if stale else "observe" if status.get("mode") == "observe" else gate["state"],
        since="" if stale else since,
        why=f"last known: {gate['state']}, {cut(gate['reason'])}" if stale else cut(gate["reason"]),
        todo=[STALE] if stale else steps(gate, status),
        reasons=reasons[:MOST_REASONS],
        more_reasons=max(0, len(reasons) - MOST_REASONS),
        facts=_facts(gate, stale),
        tokens=curve(times_s, values, _TOKENS_LOOK) if values else None,
        tokens_now="unknown" if newest is None or stale else number(newest),
        group=gate.get("group"),
    )


def _headline(gate: Mapping[str, Any], status: Mapping[str, Any], stale: bool) -> tuple[Tone, str]:
    """Tone and word. Ready is what /readyz says, never what the state alone would mean."""
    state = gate["state"]
    if stale:
        return BAD, "NOT READY: OLD ANSWER"
    if status.get("mode") == "observe":
        return WAIT, "OBSERVED"
    if gate["ready"]:
        if gate["forced"]:
            return BAD, "FORCED OPEN"
        return (SOFT, "READY, DEGRADED") if state == GateState.DEGRADED else (GOOD, "READY")
    if state == GateState.MEMBER:
        return GOOD, "MEMBER"
    words = {
        WAIT: f"STARTING: {state.upper()}",
        SOFT: state.upper(),
        GOOD: "NOT READY",
    }
    tone = TONE_OF_STATE.get(state, BAD)
    return (BAD if tone == GOOD else tone), words.get(tone, f"NOT READY: {state.upper()}")


def _reasons(blocking: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """What stands against the gate; the same of several subjects is one row."""
    rows = [(str(each["check"]), str(each["subject"]), cut(each["summary"])) for each in blocking]
    return [(check, who, summary) for check, who, summary in merge(rows, 1, subjects)]


def _facts(gate: Mapping[str, Any], stale: bool) -> list[tuple[str, str]]:
    """The engine's process, and what it has shown before the gate opened."""
    process = gate["process"] or {}
    facts = [("load balancer", f"agent check `{gate['agent_check']}`")]
    if process and not stale:
        restarts = process["restarts"]
        again = f", restarted {'once' if restarts == 1 else f'{restarts} times'}" if restarts else ""
        pid = f", pid {process['pid']}" if process["pid"] else ""
        facts.append(("process", f"{process['phase']} for {lasted(process['since_s'])}{pid}{again}"))
    for name in ("warmup", "soak"):
        if process.get(name):
            facts.append((name.replace("warmup", "warm-up"), cut(process[name]["words"])))
    return facts
