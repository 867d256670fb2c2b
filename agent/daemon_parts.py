"""The parts of a daemon's main loop, and how news travels: results and engines -> gates -> publication."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.check_track import ResultChange
from agent.checks.registry import Check
from agent.errors import AgentError, DaemonError, SourceError
from agent.gatekeeper import Gatekeeper, Ports
from agent.holds import HoldStore
from agent.journal import Journal
from agent.launch.controller import EngineController
from agent.model import EngineStatus, Result, Snapshot, Verdict
from agent.operator_desk import OperatorDesk
from agent.premises import Premises
from agent.profile_loader import LoadedProfile
from agent.publisher import NodeFacts, Publication, Publisher, answers_of
from agent.rows import merge, subjects
from agent.runner import Runner
from agent.sources import Sources
from agent.sources.engine import EngineBoard

log = logging.getLogger("nodegate.daemon")
JOURNAL_NAME = "journal.db"


class EventRelay:
    """Takes events of the sources before there is a runner to take them; from any thread."""

    def __init__(self) -> None:
        """Drop events until connected: the runner begins by running every check."""
        self._target: Callable[[str], None] | None = None

    def __call__(self, kind: str) -> None:
        """Pass an event on."""
        if self._target is not None:
            self._target(kind)

    def connect(self, target: Callable[[str], None]) -> None:
        """Pass events on to `target` from now on."""
        self._target = target


def _ignore(_publication: Publication) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a daemon is given.

    `node` names a captured node; `load_again` reads the profile for a reload, in a thread; `on_publish`
    sees each publication, on the main loop's thread.
    """

    premises: Premises
    loaded: LoadedProfile
    sources: Sources
    relay: EventRelay
    checks: Mapping[str, Check]
    load_again: Callable[[], LoadedProfile]
    node: str = ""
    on_publish: Callable[[Publication], None] = _ignore


class Parts:
    """Everything that lives on the main loop. `fail` ends the daemon."""

    def __init__(self, given: Surroundings, fail: Callable[[BaseException], None]) -> None:
        """Build every part; nothing moves yet. Raises AgentError, and then nothing is left open."""
        self.given = given
        self._fail = fail
        self.loaded = given.loaded
        self.clock = given.sources.clock
        self.boot_id = self.clock.boot_id()
        self.node = given.loaded.profile.node or given.node or socket.gethostname()
        self.problem = ""
        self.publisher = Publisher()
        self.journal = Journal.open(given.premises.folders.state_dir / JOURNAL_NAME)
        try:
            self.runner = self._make_runner()
            self.gates = self._make_gates()
            self.controllers = {name: self._controller(name) for name in given.loaded.profile.engines}
        except AgentError:
            self.journal.close()
            raise
        for name, controller in self.controllers.items():
            self.gates.add_engine(name, controller)
        self.desk = OperatorDesk(self.gates, self.journal)

    def log_tail(self, engine: str, lines: int) -> list[str] | None:
        """The last lines of an engine's output, None for an engine that is not known."""
        controller = self.controllers.get(engine)
        return controller.log_tail(lines) if controller else None

    def publish(self) -> None:
        """Swap in what is known now."""
        profile = self.loaded.profile
        problems = (self.problem, self.journal.reason, self.gates.keeper.problem)
        publication = Publication(
            mono_s=self.publisher.clock(),
            gate_mono_s=self.clock.mono_s(),
            facts=NodeFacts(
                node=self.node,
                boot_id=self.boot_id,
                simulated=self.given.sources.simulated,
                mode=profile.mode,
                profile_hash=self.loaded.hash,
                max_age_s=profile.api.max_age_s,
            ),
            answers=answers_of(self.gates.records, profile),
            records=dict(self.gates.records),
            holds=self.gates.holds,
            snapshot=self.gates.shown,
            durations_s=self.runner.durations_s,
            problems=tuple(problem for problem in problems if problem),
            journal_healthy=self.journal.healthy,
        )
        self.publisher.publish(publication)
        self.given.on_publish(publication)

    def _make_runner(self) -> Runner:
        given = self.given
        return Runner(
            given.sources,
            given.loaded,
            given.checks,
            on_results=self._take_results,
            node=self.node,
            carried=self._carried(),
        )

    def _make_gates(self) -> Gatekeeper:
        given = self.given
        ports = Ports(
            journal=self.journal,
            forget=self.runner.clear,
            clear_log=given.sources.kmsg.clear,
            on_change=self.publish,
            on_serving=self.runner.set_serving,
        )
        store = HoldStore(given.premises.folders.state_dir)
        return Gatekeeper(given.loaded.profile, given.checks, self.clock, store, ports)

    def _controller(self, name: str) -> EngineController:
        given = self.given
        board = given.sources.engines
        if not isinstance(board, EngineBoard):
            raise DaemonError("these sources have no board for engines")
        return EngineController(
            name,
            given.loaded,
            given.sources,
            board=board,
            on_status=self._take_status,
            state_dir=given.premises.folders.state_dir,
            log_dir=given.premises.folders.log_dir,
        )

    def _carried(self) -> list[Result]:
        """What an earlier agent on this boot found; without it every check simply runs first."""
        try:
            return self.journal.last_results(self.boot_id)
        except SourceError as cause:
            log.warning("no results are carried over: %s", cause)
            return []

    def _take_results(self, snapshot: Snapshot, changes: tuple[ResultChange, ...]) -> None:
        """New results: the gates first, everything slower after."""
        self.gates.evaluate(snapshot)
        self.journal.record_changes(changes, self.boot_id)
        for level, line in news_of(changes):
            log.log(level, "%s", line)

    def _take_status(self, status: EngineStatus) -> None:
        """News of an engine, taken in at the loop's next turn: a gate's own order may have caused it."""
        asyncio.get_running_loop().call_soon(self._engine_changed, status.name)

    def _engine_changed(self, name: str) -> None:
        try:
            self.gates.engine_changed(name)
        # Nobody above this callback would see a defect, and a gate that was not evaluated must not stay open.
        except Exception as defect:  # noqa: BLE001
            self._fail(defect)


def news_of(changes: Iterable[ResultChange]) -> Iterator[tuple[int, str]]:
    """Level and text of what is worth a line; what is the same for several subjects is one line."""
    news = [
        (after.check, after.subject, after.verdict, after.finding.summary)
        for after in (change.after for change in changes if _is_news(change))
    ]
    for check, subject, verdict, summary in merge(news, 1, subjects):
        level = logging.WARNING if verdict is Verdict.FAIL else logging.INFO
        yield level, f"{check} {subject}: {verdict}: {summary}"


def _is_news(change: ResultChange) -> bool:
    """Whether a change is worth a line: not every first PASS of a hundred subjects at each start."""
    if change.before is None:
        return change.after.verdict not in (Verdict.PASS, Verdict.SKIP)
    return change.before.verdict is not change.after.verdict
