"""The parts of a daemon's main loop, and how news travels: results and engines -> gates -> publication."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from signal import Signals

from agent.blockers import blocker_to_dict
from agent.check_track import ResultChange
from agent.checklist.office import ChecklistOffice, Replayed
from agent.checklist.past_runs import PastRuns
from agent.checklist.store import RunStore
from agent.checks.registry import Check
from agent.daemon_memory import CounterKeeper, inherit
from agent.daemon_news import as_shown, news_of
from agent.errors import AgentError, DaemonError
from agent.evaluate import Blocker
from agent.explain import Explainer
from agent.fault_captures import FaultCaptures
from agent.fresh_start import is_fast
from agent.front import Front
from agent.gatekeeper import Gatekeeper, Ports
from agent.group.answer import GroupAnswer
from agent.group.key import read_key
from agent.group.member import GroupMember, Membership
from agent.holds import HoldStore
from agent.journal import Journal
from agent.launch.controller import EngineController
from agent.log_events import Event, about_each
from agent.model import EngineStatus, Snapshot
from agent.node_profile import Mode
from agent.operator_desk import OperatorDesk
from agent.pairs import pair_answers
from agent.part_history import faults_of
from agent.parts import PartBook, PartReader
from agent.premises import Premises
from agent.profile_loader import LoadedProfile
from agent.publisher import NodeFacts, Publication, Publisher, answers_of
from agent.recent_changes import RecentChanges
from agent.recent_history import HistoryRecorder, token_counts
from agent.runner import Runner
from agent.sources import Sources
from agent.sources.engine import EngineBoard
from agent.sources.group_reading import GroupBoard

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
    #: What serves the API already; without it the daemon serves it itself.
    front: Front | None = None
    #: What a simulated daemon replays.
    replayed: Replayed | None = None
    #: Signals that came before the daemon could follow them.
    told: Sequence[Signals] = ()


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
        self.explainer = Explainer(given.loaded, given.checks)
        self.book = PartBook()
        self.part_reader = PartReader(self.book, given.sources, lambda: self.loaded.profile)
        self.publisher = given.front.publisher if given.front is not None else Publisher()
        self.journal = Journal.open(given.premises.folders.state_dir / JOURNAL_NAME)
        self._fleeting = frozenset(id_ for id_, check in given.checks.items() if is_fast(check))
        self.counters = CounterKeeper(self.journal, given.sources)
        self.recent = RecentChanges(self.journal)
        self.recorder = HistoryRecorder()
        self.group_board = GroupBoard()
        try:
            self.runner = self._make_runner()
            self.gates = self._make_gates()
            self.controllers = {name: self._controller(name) for name in given.loaded.profile.engines}
            self.members = self._make_members()
        except AgentError:
            self.journal.close()
            raise
        for name, controller in self.controllers.items():
            self.gates.add_engine(name, controller)
        self.gates.groups.update(self.members)
        self.desk = OperatorDesk(self.gates, self.journal)
        folder = given.premises.folders.state_dir
        self.checklists = ChecklistOffice(
            folder, given.sources, lambda: self.loaded, self.gates, self.desk, given.replayed
        )

    def log_tail(self, engine: str, lines: int) -> list[str] | None:
        """The last lines of an engine's output, None for an engine that is not known."""
        controller = self.controllers.get(engine)
        return controller.log_tail(lines) if controller else None

    def take_profile(self, loaded: LoadedProfile) -> None:
        """Another profile is in force."""
        self.loaded, self.problem = loaded, ""
        self.explainer = Explainer(loaded, self.given.checks)

    def keep_memory(self) -> None:
        """Leave for a restarted agent what is known now, as often as it is worth it."""
        self.journal.record_latest(self.runner.snapshot, self.runner.memories, self._fleeting)
        self.counters.keep()

    def publish(self) -> None:
        """Swap in what is known now."""
        profile = self.loaded.profile
        problems = (self.problem, self.journal.reason, self.gates.keeper.problem)
        answers = answers_of(self.gates.records, profile, self.explainer)
        now_mono_s = self.clock.mono_s()
        if self.recorder.due(now_mono_s):
            tokens = token_counts(self.given.sources.engines, profile.engines)
            self.recorder.take(now_mono_s, self.clock.wall_s(), self.gates.shown, tokens)
        publication = Publication(
            mono_s=self.publisher.clock(),
            gate_mono_s=now_mono_s,
            facts=NodeFacts(
                node=self.node,
                boot_id=self.boot_id,
                simulated=self.given.sources.simulated,
                mode=profile.mode,
                profile_hash=self.loaded.hash,
                max_age_s=profile.api.max_age_s,
            ),
            answers=answers,
            records=dict(self.gates.records),
            holds=self.gates.holds,
            snapshot=self.gates.shown,
            durations_s=self.runner.durations_s,
            problems=tuple(problem for problem in problems if problem),
            journal_healthy=self.journal.healthy,
            explainer=self.explainer,
            groups={name: self._group_answer(name, member) for name, member in self.members.items()},
            pairs=pair_answers(profile, answers),
            history=self.recorder.history,
            changes=self.recent.changes,
            checklist=self.checklists.watch.current,
        )
        self.publisher.publish(publication)
        self.given.on_publish(publication)

    def _make_runner(self) -> Runner:
        given = self.given
        inherited = inherit(self.journal, given.sources)
        past = PastRuns(RunStore(given.premises.folders.state_dir), given.sources, lambda: self.loaded)
        return Runner(
            replace(given.sources, history=self.journal, groups=self.group_board, checklists=past),
            given.loaded,
            given.checks,
            on_results=self._take_results,
            node=self.node,
            carried=inherited.results,
            memories=inherited.memories,
            on_defect=self._take_defect,
            part_of=self.book.part_of,
        )

    def _make_gates(self) -> Gatekeeper:
        given, folder = self.given, self.given.premises.folders.state_dir
        ports = Ports(
            journal=FaultCaptures(self.journal, folder, given.sources, lambda: self.loaded.profile),
            forget=self.runner.clear,
            clear_log=given.sources.kmsg.clear,
            on_change=self.publish,
            on_serving=self._take_serving,
            explain=self._explain,
        )
        return Gatekeeper(given.loaded.profile, given.checks, self.clock, HoldStore(folder), ports)

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
            run_dir=given.premises.folders.run_dir,
            on_crash=self._take_crash,
            on_mark=self._take_mark,
        )

    def _make_members(self) -> dict[str, GroupMember]:
        """This node's part in the groups of its engines. Raises ConfigError for a key that is not safe."""
        given, profile = self.given, self.loaded.profile
        members: dict[str, GroupMember] = {}
        for name, engine in profile.engines.items():
            if engine.group is None or profile.mode is not Mode.MANAGE:
                continue
            node = engine.group.members[engine.group.rank].node
            folder = given.premises.folders.state_dir
            made = Membership(name, node, read_key(engine.group.key_file), folder, profile.api.max_age_s)
            news = partial(self._engine_changed, name)
            controller = self.controllers[name]
            members[name] = GroupMember(made, profile, given.sources, self.group_board, controller, news)
        return members

    def _group_answer(self, name: str, member: GroupMember) -> GroupAnswer:
        seen = member.observation(self.gates.records[name])
        return GroupAnswer(seen.status, seen, member.key)

    def _explain(self, blocker: Blocker) -> dict[str, object]:
        return blocker_to_dict(blocker, self.explainer)

    def _take_crash(self, engine: str, reason: str, lines: Sequence[str]) -> None:
        self.journal.record_crash(engine, reason, lines, boot_id=self.boot_id)

    def _take_mark(self, mark: str, summary: str) -> None:
        self.journal.record_mark(mark, summary, boot_id=self.boot_id)

    def _take_defect(self, check: str, error: str, trace: str) -> None:
        self.journal.record_trace(check, error, trace, boot_id=self.boot_id)

    def _take_serving(self, serving: bool) -> None:
        """The first gate has opened, or the last one has closed."""
        self.runner.set_serving(serving)
        if serving:
            self.counters.gate_opened()

    def _take_results(self, snapshot: Snapshot, changes: tuple[ResultChange, ...]) -> None:
        """New results: the gates first, everything slower after."""
        self.gates.evaluate(snapshot)
        shown = self.gates.shown
        changes = tuple(as_shown(change, shown) for change in changes) if shown else changes
        self.journal.record_changes(changes, self.boot_id, self.explainer.to_dict)
        for fault in faults_of(changes, self.clock.wall_s(), self.boot_id):
            self.journal.record_fault(fault)
        for level, line, each in news_of(changes):
            log.log(level, "%s", line, extra=about_each(Event.CHECK_CHANGED, each))

    def _take_status(self, status: EngineStatus) -> None:
        """News of an engine, taken in at the loop's next turn: a gate's own order may have caused it."""
        asyncio.get_running_loop().call_soon(self._engine_changed, status.name)

    def _engine_changed(self, name: str) -> None:
        try:
            self.gates.engine_changed(name)
        # Nobody above this callback would see a defect, and a gate that was not evaluated must not stay open.
        except Exception as defect:  # noqa: BLE001
            self._fail(defect)
