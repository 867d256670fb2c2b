"""What the demo tells: publications of the daemon in, lines for a person out. All of it is SIMULATED."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agent.evaluate import Blocker
from agent.gate_record import GateRecord
from agent.model import Result, ResultKey, Verdict
from agent.publisher import Publication
from agent.rows import Row, merge, reading_of, subjects

Line = tuple[str, str]
#: Blockers that are told of one closed gate; the status page shows all.
MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """A gate that opened or closed: when (seconds since the demo began), which, and why."""

    at_s: float
    engine: str
    opened: bool
    reason: str


class Story:
    """Remembers what was last told, so that each change is told once. `tell` takes a line and its style."""

    def __init__(self, tell: Callable[[str, str], None], elapsed_s: Callable[[], float]) -> None:
        """Tell nothing yet."""
        self._tell = tell
        self._elapsed_s = elapsed_s
        self._gates: Mapping[str, GateRecord] = {}
        self._results: Mapping[ResultKey, Result] = {}
        self._ending = False
        self._missing: set[str] = set()
        self.turns: list[Turn] = []

    @property
    def opened(self) -> bool:
        """Whether a gate has been open."""
        return any(turn.opened for turn in self.turns)

    def scene(self, text: str) -> None:
        """A step of the scenario; none is told once the daemon is ending."""
        if not self._ending:
            self._say(f"--- {text} ---", "bold cyan")

    def end(self, text: str) -> None:
        """The last scene: what checks say of an engine that is being stopped is no news."""
        self.scene(text)
        self._ending = True

    def take(self, publication: Publication) -> None:
        """Tell what is new in a publication."""
        self._ending = self._ending or any(record.shutting_down for record in publication.records.values())
        results = publication.snapshot.results if publication.snapshot else {}
        if self.opened and not self._ending:
            self._changes(self._results, results)
        self._results = results
        for name, record in publication.records.items():
            before = self._gates.get(name)
            if before is None or before.state is not record.state:
                self._gate(before, record, publication)
        self._gates = publication.records

    def _changes(self, before: Mapping[ResultKey, Result], after: Mapping[ResultKey, Result]) -> None:
        """Verdicts that changed; evidence that many checks miss for one reason is told once."""
        for verdict, check, several, summary in changed_results(before, after):
            if verdict == Verdict.UNKNOWN.value:
                if reading_of(summary) in self._missing:
                    continue
                self._missing.add(reading_of(summary))
            style = {"FAIL": "red", "PASS": "green", "SKIP": "green"}.get(verdict, "yellow")
            self._say(f"  {verdict:7} {check} {several}: {summary}", style)

    def _gate(self, before: GateRecord | None, record: GateRecord, publication: Publication) -> None:
        """One gate's change of state."""
        name = record.config.engine
        answer = publication.answers[name]
        if record.state == "launching" and not self.opened:
            self._say(preflight_summary(self._results), "green")
        way = f"{before.state} -> {record.state}" if before is not None else record.state.value
        code = 200 if answer.ready else 503
        self._say(f"gate {name}: {way}   /readyz {code}, agent check `{answer.agent_line}`", _style(record))
        was_open = before is not None and before.ready
        if record.ready and not was_open:
            self.turns.append(Turn(self._elapsed_s(), name, True, record.reason))
        if was_open and not record.ready:
            self.turns.append(Turn(self._elapsed_s(), name, False, record.reason))
        if was_open or record.state == "failed":
            for line in reasons(record):
                self._say(*line)

    def _say(self, text: str, style: str = "") -> None:
        self._tell(f"{self._elapsed_s():6.1f} s  {text}", style)


def changed_results(before: Mapping[ResultKey, Result], after: Mapping[ResultKey, Result]) -> list[Row]:
    """Verdicts that became another one: verdict, check, subjects, summary.

    A subject that is seen for the first time is told only when it is bad.
    """
    rows: list[Row] = []
    for key, result in after.items():
        old = before[key].verdict if key in before else Verdict.PASS
        if result.verdict is old or {result.verdict, old} <= {Verdict.PASS, Verdict.SKIP}:
            continue
        rows.append((result.verdict.value, result.check, result.subject, result.finding.summary))
    return merge(rows, 2, subjects)


def reasons(record: GateRecord) -> Iterator[Line]:
    """Why a gate is not (fully) open and what to do; one line while evidence is still missing."""
    waiting = all(blocker.verdict is Verdict.UNKNOWN for blocker in record.blockers)
    shown = record.blockers[: 1 if waiting else MOST_REASONS]
    for blocker in shown:
        yield f"    why  {_text(blocker)}", "red"
        if blocker.action.hint:
            yield f"    do   {blocker.action.hint}", "yellow"
    if len(record.blockers) > len(shown):
        yield f"         and {len(record.blockers) - len(shown)} more", "dim"
    if not record.blockers:
        yield f"    why  {record.reason}", "dim"


def preflight_summary(results: Mapping[ResultKey, Result]) -> str:
    """How many results there are and how they are."""
    verdicts = Counter(
        result.verdict.value for result in results.values() if not result.subject.startswith("engine:")
    )
    checks = len({result.check for result in results.values() if not result.subject.startswith("engine:")})
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    return f"preflight: {checks} checks, {verdicts.total()} results: {counted}"


def _text(blocker: Blocker) -> str:
    return f"{blocker.check} {blocker.subject}: {blocker.summary}"


def _style(record: GateRecord) -> str:
    if record.ready:
        return "bold green" if record.state == "serving" else "bold yellow"
    return "bold red" if record.state in ("failed", "quarantined") else "cyan"
