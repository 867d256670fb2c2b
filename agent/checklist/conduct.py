"""`checklist run` from the words of the command line to its exit code."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from agent.checklist.begin import Facts, new_record
from agent.checklist.drained import await_drained
from agent.checklist.hardware import parts_of
from agent.checklist.load import load_checklist, load_named, origin_of, own_of, with_settings
from agent.checklist.may_start import refuse_unless_held
from agent.checklist.model import Checklist
from agent.checklist.operator import Operator, ask_on_terminal
from agent.checklist.places import Places, find_places, node_name
from agent.checklist.record import RunRecord
from agent.checklist.report import refuse_unwritable, write_reports
from agent.checklist.resume import refuse_to_resume, take_up, to_resume
from agent.checklist.run import Run
from agent.checklist.show import show_record
from agent.checklist.steps import CalledOff, Surroundings
from agent.checklist.store import RunStore
from agent.checks.registry import load_all
from agent.commands import open_sources
from agent.console import Out
from agent.errors import ConfigError, SourceError
from agent.model import Verdict
from agent.sources import Sources
from agent.sources.replay import ReplaySources

EXIT_CALLED_OFF = 130
_EXIT = {Verdict.FAIL: 1, Verdict.UNKNOWN: 2}


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    name: str
    file: Path | None = None
    profile: Path | None = None
    overlays: tuple[Path, ...] = ()
    node: Path | None = None
    scenario: Path | None = None
    run_dir: Path | None = None
    state_dir: Path | None = None
    resume: bool = False
    answers: Mapping[str, str] = field(default_factory=dict)
    who: str = ""
    reason: str = ""
    settings: Mapping[str, float] = field(default_factory=dict)
    report: Path | None = None


def conduct(wanted: Wanted) -> int:
    """Run or resume a checklist; the exit code. Raises AgentError."""
    places = find_places(
        profile=wanted.profile,
        overlays=wanted.overlays,
        node=wanted.node,
        scenario=wanted.scenario,
        run_dir=wanted.run_dir,
        state_dir=wanted.state_dir,
    )
    checklist = _checklist(wanted, places)
    set_lower, shortened = with_settings(checklist, wanted.settings)
    _refuse_answers_to_nothing(checklist, wanted)
    out = Out()
    if checklist.needs == "closed" and places.daemon is not None:
        await_drained(places.daemon, out.line)
    if wanted.report is not None:
        refuse_unwritable(wanted.report)
    store = RunStore(places.state_dir)
    store.make()
    out.banner(places.node is not None, places.node.name if places.node is not None else "")
    with (
        store.lock(),
        open_sources(places.loaded.profile, node=places.node, scenario=places.scenario) as opened,
    ):
        if places.joins and isinstance(opened, ReplaySources):
            opened.follow(places.scenario_began_mono_s)
        record = _record(wanted, places, checklist, shortened, store, opened.sources)
        refuse_unless_held(places.daemon, checklist, record, wanted.run_dir)
        if not wanted.resume:
            store.begin(record.run_id)
        given = _surroundings(wanted, places, set_lower, record, opened.sources, out)
        return _go(Run(given, store), given, store, wanted, out)


def _checklist(wanted: Wanted, places: Places) -> Checklist:
    if wanted.file is None:
        return load_named(wanted.name, own_of(places.loaded))
    checklist = load_checklist(wanted.file)
    if checklist.name != wanted.name:
        raise ConfigError(f"{wanted.file} holds the checklist {checklist.name}, not {wanted.name}")
    return checklist


def _refuse_answers_to_nothing(checklist: Checklist, wanted: Wanted) -> None:
    questions = [step.id for step in checklist.steps if hasattr(step, "question")]
    for step in wanted.answers:
        if step not in questions:
            there = ", ".join(questions) or "none"
            raise ConfigError(f"--answer {step}: there is no such question; questions: {there}")


def _record(
    wanted: Wanted,
    places: Places,
    checklist: Checklist,
    shortened: list[str],
    store: RunStore,
    sources: Sources,
) -> RunRecord:
    """A new record, or that of the run that goes on."""
    try:
        parts = parts_of(sources, places.loaded.profile, serials=True)
        boot_id = sources.clock.boot_id()
    except SourceError as cause:
        raise ConfigError(f"the hardware cannot be identified: {cause}") from cause
    wall_s = sources.clock.wall_s()
    facts = Facts(
        node=node_name(places),
        simulated=sources.simulated,
        profile_hash=places.loaded.hash,
        boot_id=boot_id,
        parts=parts,
        wall_s=wall_s,
        origin="file" if wanted.file is not None else origin_of(wanted.name, own_of(places.loaded)),
    )
    fresh = new_record(checklist, facts, who=wanted.who, reason=wanted.reason, shortened=shortened)
    if wanted.resume:
        record = to_resume(store, checklist)
        refuse_to_resume(record, fresh)
        take_up(record, checklist, boot_id)
        return record
    return fresh


def _surroundings(
    wanted: Wanted, places: Places, checklist: Checklist, record: RunRecord, sources: Sources, out: Out
) -> Surroundings:
    prompt = ask_on_terminal if sys.stdin.isatty() else None
    return Surroundings(
        checklist=checklist,
        record=record,
        loaded=places.loaded,
        sources=sources,
        checks=load_all(),
        ask=Operator(wanted.who, wanted.answers, prompt=prompt, wall_s=sources.clock.wall_s),
        asks_person=lambda step: prompt is not None and step not in wanted.answers,
        say=out.line,
        daemon=places.daemon,
    )


def _go(run: Run, given: Surroundings, store: RunStore, wanted: Wanted, out: Out) -> int:
    """The run itself; whatever its end, reports are written and shown where."""
    out.line(f"run {given.record.run_id}")
    try:
        with _ended_by_signals(given.cancelled):
            run.go()
    except CalledOff:
        out.line("called off; to go on, run the same command with --resume")
        _report(given.record, store, wanted, out)
        return EXIT_CALLED_OFF
    except ConfigError:
        _report(given.record, store, wanted, out)
        raise
    _report(given.record, store, wanted, out)
    out.line()
    show_record(given.record, out)
    verdict = given.record.verdict
    return _EXIT.get(verdict, 0) if verdict is not None else _EXIT[Verdict.UNKNOWN]


def _report(record: RunRecord, store: RunStore, wanted: Wanted, out: Out) -> None:
    folders = [store.folder / record.run_id, *([wanted.report] if wanted.report is not None else [])]
    written = [path for folder in folders for path in write_reports(record, folder)]
    out.line(f"report: {written[-1]}")


@contextmanager
def _ended_by_signals(cancelled: threading.Event) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal call the run off: once in order, the second time at once."""

    def call_off(_number: int, _frame: FrameType | None) -> None:
        cancelled.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, call_off) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
