"""Publications of whole nodes for the status page, without a daemon.

Checks run once on a replayed node (SIMULATED), gates are judged by their results; curves are made up around
what was read, so that a page has something to draw.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gate_kit as kit
import yaml
from nodes import node_dir, profile_path
from server_kit import Served, serve

from agent.checks.registry import load_all
from agent.evaluate import judge
from agent.explain import Explainer
from agent.gate import new_gate
from agent.gate_record import GateRecord
from agent.holds import EngineHolds, Holds
from agent.model import EnginePhase, EngineStatus, GateState, Measure, Result, Snapshot
from agent.one_shot import run_pass
from agent.pairs import pair_answers
from agent.profile_loader import LoadedProfile, load_profile
from agent.publisher import NodeFacts, Publication, Publisher, answers_of, boottime_s
from agent.recent_history import SAMPLES, UNITS, History, HistoryRecorder, TokenCount
from agent.sources.replay import replay_sources

S = GateState
MAX_AGE_S = 5.0
WALL_S = 1_790_000_000.0
#: A set-up of engines on a node of another name.
_FOLDERS = {"h200-roce-two-engines": "h200-roce"}


@cache
def _passed(name: str, scenario: Path | None) -> tuple[LoadedProfile, tuple[Result, ...]]:
    """Every check of a node once; measured at 0."""
    loaded, checks = load_profile(profile_path(name)), load_all()
    replay = replay_sources(node_dir(_FOLDERS.get(name, name)), scenario)
    replay.start()
    try:
        report = run_pass(
            replay.sources, loaded, checks, phase=None, only=None, node=name, sample_s=0, sleep=lambda _: None
        )
    finally:
        replay.close()
    return loaded, report.results


def scenario(folder: Path, **step: Any) -> Path:
    """A scenario whose one step holds from the beginning."""
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump({"name": "page", "steps": [{"at_s": 0, **step}]}))
    return path


class Node:
    """One node's publications."""

    def __init__(self, name: str, scenario: Path | None = None) -> None:
        self.name = name
        self.loaded, self.results = _passed(name, scenario)
        self.checks = load_all()

    def publication(
        self,
        states: Mapping[str, GateState] | GateState = S.SERVING,
        *,
        holds: Holds | None = None,
        age_s: float = 0.0,
        curves: bool = True,
        **more: Any,
    ) -> Publication:
        """The node with its gates in these states, `age_s` ago."""
        now_s = boottime_s() - age_s
        results = {(r.check, r.subject): _as_of_daemon(r, now_s) for r in self.results}
        snapshot = Snapshot(self.name, self.loaded.hash, True, "boot-a", now_s, WALL_S, results)
        engines = self.loaded.profile.engines
        by_name = states if isinstance(states, Mapping) else dict.fromkeys(engines, states)
        held = holds or Holds(engines={name: EngineHolds() for name in engines})
        records = {name: self._record(name, by_name[name], snapshot, held) for name in engines}
        explainer = Explainer(self.loaded, self.checks)
        answers = answers_of(records, self.loaded.profile, explainer)
        facts = NodeFacts(self.name, "boot-a", True, self.loaded.profile.mode, self.loaded.hash, MAX_AGE_S)
        parts: dict[str, Any] = {
            "snapshot": snapshot,
            "explainer": explainer,
            "pairs": pair_answers(self.loaded.profile, answers),
            "history": made_up_history(snapshot, tuple(engines)) if curves else History(),
        }
        return Publication(now_s, now_s, facts, answers, records, held, **parts | more)

    def _record(self, name: str, state: GateState, snapshot: Snapshot, holds: Holds) -> GateRecord:
        profile, now_s = self.loaded.profile, snapshot.mono_s
        judgement = judge(snapshot, profile, name, self.checks, now_s)
        blockers = (*judgement.immediate, *judgement.hard) if state is not S.SERVING else ()
        if state is S.DEGRADED:
            blockers = judgement.soft
        elif state in (S.PREFLIGHT, S.FAILED):
            blockers = blockers or judgement.admission_blockers
        reason = f"{blockers[0].check} {blockers[0].subject}: {blockers[0].summary}" if blockers else ""
        config = replace(kit.config(engine=name), mode=profile.mode)
        return replace(
            new_gate(config, now_s - 754),
            state=state,
            blockers=blockers,
            reason=reason or f"{state}: nothing stands against it",
            engine=EngineStatus(name, EnginePhase.WARM, now_s - 700, "warm, canary ok", 4242, 1),
            holds=holds.of_engine(name),
            maintenance=holds.maintenance,
        )


def _as_of_daemon(result: Result, now_s: float) -> Result:
    """A result of one pass as the runner has it."""
    return replace(result, measured_mono_s=now_s, measures=result.finding.measures)


def made_up_history(snapshot: Snapshot, engines: tuple[str, ...]) -> History:
    """Ten minutes of curves that end at the snapshot's own values, with a gap of half a minute."""
    recorder = HistoryRecorder()
    measured = {
        key: replace(result, measures=tuple(each for each in result.measures if each.name in UNITS))
        for key, result in snapshot.results.items()
        if any(each.name in UNITS for each in result.measures)
    }
    for at in range(SAMPLES):
        left = SAMPLES - 1 - at
        if 50 <= left < 56:
            continue
        then_s = snapshot.mono_s - 5 * left
        moved = {
            key: replace(
                result,
                measures=tuple(_moved(each, left, key[1]) for each in result.measures),
                measured_mono_s=then_s,
            )
            for key, result in measured.items()
        }
        tokens = {name: TokenCount(at * 9000.0 + 3000 * math.sin(at / 5), then_s) for name in engines}
        recorder.take(then_s, snapshot.wall_s - 5 * left, replace(snapshot, results=moved), tokens)
    return recorder.history


def _moved(measure: Measure, left: int, subject: str) -> Measure:
    phase = sum(map(ord, subject)) % 7
    share = 1 + 0.12 * math.sin(left / 9 + phase) * min(1, left / 20)
    return replace(measure, value=measure.value * share)


class Site:
    """A server whose publication is renewed as a daemon's main loop does, until it is held."""

    def __init__(self, publisher: Publisher, served: Served) -> None:
        self.publisher, self.served = publisher, served
        self.address = f"http://127.0.0.1:{served.port}/"
        self._shown: Publication | None = None
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._beat)

    def show(self, publication: Publication) -> None:
        """Publish, and again every moment as if nothing changed."""
        with self._lock:
            self._shown = publication
            self._renew()

    def hold(self) -> None:
        """Publish and beat no more: the main loop hangs."""
        with self._lock:
            self._shown = None

    def _renew(self) -> None:
        if self._shown is not None:
            self.publisher.beat()
            self.publisher.publish(replace(self._shown, mono_s=boottime_s()))

    def _beat(self) -> None:
        while not self._ending.wait(0.2):
            with self._lock:
                self._renew()

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Site]:
        """A site, closed at the end of the block."""
        publisher = Publisher()
        with serve(publisher, folder) as served:
            site = cls(publisher, served)
            site._thread.start()
            try:
                yield site
            finally:
                site._ending.set()
                site._thread.join()
