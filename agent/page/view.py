"""All that the page shows, from the status and from what has been published with it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.explain import result_view
from agent.explain_lines import explanation, flags
from agent.model import WORST_FIRST, GateState, Result
from agent.page.engines import Card, cards
from agent.page.node_map import MapMaker, NodeMap
from agent.page.words import BAD, GOOD, MARKS, SOFT, TONE_OF_VERDICT, WAIT, Tone, clock, cut, lasted, mark_of
from agent.publisher import Publication
from agent.recent_changes import NO_CHANGES, Change, Changes
from agent.rows import Row, merge, names, natural, reading_of, subjects, worst_first

MOST_FINDINGS = 15
#: What the status lacks before anything is published.
_NOTHING: dict[str, Any] = {"node": "", "simulated": False, "mode": "", "profile_hash": "", "pairs": []}
TELLING = ("FAIL", "UNKNOWN", "WARN")
_ORDER = [verdict.value for verdict in WORST_FIRST]


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of what is not right; `note` is what it rests on."""

    verdict: str
    flags: str
    check: str
    subjects: str
    summary: str
    hint: str
    note: str

    @property
    def tone(self) -> Tone:
        """For its colour."""
        return TONE_OF_VERDICT[self.verdict]

    @property
    def mark(self) -> str:
        """The sign beside the verdict."""
        return mark_of(self.verdict)


@dataclass(frozen=True, slots=True)
class Page:
    """What the template fills in. `word` and `tone` are the node's; `notices` are (tone, text)."""

    status: Mapping[str, Any]
    tone: Tone
    word: str
    stale: bool
    as_of: str
    age_s: float
    max_age_s: float
    notices: Sequence[tuple[Tone, str]]
    cards: Sequence[Card]
    checklist: Mapping[str, Any] | None
    map: NodeMap | None
    findings: Sequence[Finding]
    more_findings: int
    checks: Sequence[tuple[str, str, str]]
    check_count: int
    counts: str
    changes: Changes
    change_rows: Sequence[tuple[str, Change]]

    @property
    def mark(self) -> str:
        """The sign beside the word."""
        return MARKS[self.tone]


def page_view(status: Mapping[str, Any], current: Publication | None, now_wall_s: float) -> Page:
    """The page; `status` is the status view, without results, of the same publication at that moment."""
    max_age_s = current.facts.max_age_s if current else 5.0
    age_s = float(status.get("age_s", 0.0))
    stale = not status["live"] or current is None or not -1.0 <= age_s <= max_age_s
    history = current.history.series() if current else {}
    times_s = current.history.times_s() if current else []
    shown = cards(status, history, times_s, now_wall_s, stale)
    tone, word = _overall(shown, status, current, stale)
    results = list(current.snapshot.results.values()) if current and current.snapshot else []
    findings = _findings(results, current, age_s)
    changes = current.changes if current else NO_CHANGES
    return Page(
        status=_NOTHING | dict(status),
        tone=tone,
        word=word,
        stale=stale,
        as_of=clock(now_wall_s - age_s, now_wall_s),
        age_s=age_s,
        max_age_s=max_age_s,
        notices=_notices(status, current, stale, now_wall_s),
        cards=shown,
        checklist=status.get("checklist"),
        map=_map(current, history, times_s, age_s),
        findings=findings[:MOST_FINDINGS],
        more_findings=max(0, len(findings) - MOST_FINDINGS),
        checks=_checks(results),
        check_count=len({result.check for result in results}),
        counts=_counted(result.verdict for result in results),
        changes=changes,
        change_rows=[(clock(change.wall_s, now_wall_s), change) for change in changes.rows],
    )


def _map(
    current: Publication | None, history: Mapping[Any, list[float | None]], times_s: list[float], age_s: float
) -> NodeMap | None:
    if current is None or current.explainer is None:
        return None
    profile, now_mono_s = current.explainer.loaded.profile, current.gate_mono_s + age_s
    return MapMaker(profile, current.snapshot, history, times_s, now_mono_s).make()


def _overall(
    shown: Sequence[Card], status: Mapping[str, Any], current: Publication | None, stale: bool
) -> tuple[Tone, str]:
    """The node in a word: that of its one engine, or how many of them are ready."""
    if current is None:
        return WAIT, "NOT READY: STARTING"
    if stale:
        return BAD, "NOT READY: OLD ANSWER"
    if not shown:
        return WAIT, "OBSERVED" if status.get("mode") == "observe" else "NO ENGINES"
    words = {card.word for card in shown}
    if len(words) == 1:
        return shown[0].tone, shown[0].word
    ready = sum(gate["ready"] or gate["state"] == GateState.MEMBER for gate in status["gates"])
    worst = next(tone for tone in (BAD, SOFT, WAIT, GOOD) if any(card.tone == tone for card in shown))
    if ready == len(shown):
        return worst, "READY, DEGRADED" if worst == SOFT else "READY, LOOK BELOW"
    return worst, f"{ready} OF {len(shown)} ENGINES READY"


def _notices(
    status: Mapping[str, Any], current: Publication | None, stale: bool, now_wall_s: float
) -> list[tuple[Tone, str]]:
    """What operators have decided and what is wrong with the agent: nobody finds it out by surprise."""
    told: list[tuple[Tone, str]] = []
    if not status["live"]:
        told.append((BAD, "The agent's main loop does not beat: nothing on this page is current."))
    elif stale and current is not None:
        age = lasted(status["age_s"])
        told.append((BAD, f"The newest answer is {age} old: nothing on this page is current."))
    holds = status.get("holds") or {"maintenance": None, "waivers": []}
    if held := holds["maintenance"]:
        since = clock(held["since_wall_s"], now_wall_s)
        told.append((SOFT, f"MAINTENANCE since {since} UTC by {held['who']}: {cut(held['reason'])}"))
    told += [(tone, text) for gate in status["gates"] for tone, text in _held(gate)]
    for waiver in holds["waivers"]:
        until = clock(waiver["until_wall_s"], now_wall_s)
        of = f"{waiver['check']} {waiver['subject']} until {until} UTC by {waiver['who']}"
        told.append((SOFT, f"WAIVED {of}: {cut(waiver['reason'])}"))
    if shadow := status.get("shadow"):
        told.append(
            (SOFT, f"SHADOW {cut(', '.join(shadow))}: shown, but the profile lets them gate nothing.")
        )
    return told + [(BAD, f"PROBLEM: {cut(problem)}") for problem in status.get("problems") or ()]


def _held(gate: Mapping[str, Any]) -> list[tuple[Tone, str]]:
    """The holds of one engine."""
    told: list[tuple[Tone, str]] = []
    if force := gate["force_open"]:
        left = lasted(force["left_s"])
        text = f"FORCE-OPEN {gate['engine']} for another {left} by {force['who']}: {cut(force['reason'])}"
        told.append((BAD, text))
    for word in ("quarantine", "drain"):
        if hold := gate[word]:
            text = f"{word.upper()} of {gate['engine']} by {hold['who']}: {cut(hold['reason'])}"
            told.append((BAD if word == "quarantine" else SOFT, text))
    return told


def _findings(results: Sequence[Result], current: Publication | None, age_s: float) -> list[Finding]:
    """What is not PASS or SKIP, worst first; the same of several subjects is one row."""
    if current is None:
        return []
    now_mono_s = current.gate_mono_s + age_s
    bad = sorted((r for r in results if r.verdict in TELLING), key=lambda r: (r.check, natural(r.subject)))
    known = [_told(result_view(result, current.explainer, now_mono_s)) for result in bad]
    rows = [*_shared(row for row in known if row[0] == "UNKNOWN"), *(r for r in known if r[0] != "UNKNOWN")]
    return [Finding(*row) for row in worst_first(merge(rows, 3, subjects), 0)]


def _told(said: Mapping[str, Any]) -> Row:
    """One result as a row."""
    summary, hint = cut(reading_of(said["summary"])), cut(said["action"]["hint"])
    note = cut(" · ".join(explanation(said)))
    return said["verdict"], flags(said), said["check"], said["subject"], summary, hint, note


def _shared(unknown: Iterable[Row]) -> list[Row]:
    """Missing evidence by its cause: mending one thing brings what several checks miss."""
    causes: dict[Row, list[Row]] = {}
    for row in unknown:
        causes.setdefault((row[1], row[3], row[4]), []).append(row)
    rows = []
    for several in causes.values():
        verdict, flag, check, subject, summary, hint, note = several[0]
        if len(several) > 1:
            check, note = names([row[2] for row in several]), ""
            hint = Counter(row[5] for row in several).most_common(1)[0][0]
        rows.append((verdict, flag, check, subject, summary, hint, note))
    return rows


def _checks(results: Sequence[Result]) -> list[tuple[str, str, str]]:
    """Verdict, counts of verdicts, and the checks that have these; worst first."""
    of: dict[str, list[str]] = {}
    for result in results:
        of.setdefault(result.check, []).append(result.verdict)
    alike: dict[tuple[str, str], list[str]] = {}
    for check, verdicts in sorted(of.items()):
        alike.setdefault((min(verdicts, key=_ORDER.index), _counted(verdicts)), []).append(check)
    rows = [(verdict, counted, ", ".join(checks)) for (verdict, counted), checks in alike.items()]
    return [(verdict, counted, checks) for verdict, counted, checks in worst_first(rows, 0)]


def _counted(verdicts: Iterable[str]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _ORDER if counts[verdict])
