"""What a restarted agent takes over: counters and results of this boot, nothing of another one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from runner_kit import BOOT, HandClock, result, snapshot, sources

from agent.check_track import ResultChange
from agent.daemon_memory import COUNTERS, KEEP_EVERY_S, SERIES, CounterKeeper, inherit
from agent.errors import BaselineOnly
from agent.journal import Journal
from agent.model import Verdict
from agent.track_memory import SubjectMemory

KEY = ("gpu.lost", "gpu3")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "journal.db")
    yield opened
    opened.close()


def _kept(journal: Journal, clock: HandClock) -> None:
    """What an agent leaves behind: a failure and a counter."""
    given = sources(clock)
    with pytest.raises(BaselineOnly):
        given.counters.delta("c", 100, clock.now - 10)
    failed = result(*KEY, Verdict.FAIL, measured_mono_s=clock.now)
    memory = SubjectMemory("h", failed=True, fail_since_mono_s=clock.now)
    journal.record_changes([ResultChange(None, failed, memory)], BOOT)
    CounterKeeper(journal, given).keep(now=True)
    assert journal.flush()


def test_counters_results_and_memories_are_taken_over(journal: Journal) -> None:
    clock = HandClock(1000.0)
    _kept(journal, clock)
    clock.now = 1005.0
    again = sources(clock)
    inherited = inherit(journal, again)
    assert [(r.check, r.subject, r.verdict) for r in inherited.results] == [(*KEY, Verdict.FAIL)]
    assert inherited.memories[KEY] == SubjectMemory("h", failed=True, fail_since_mono_s=1000.0)
    assert again.counters.delta("c", 103, 1005.0).delta == 3


def test_another_boot_inherits_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    _kept(journal, HandClock(1000.0))
    other = HandClock(5.0)
    monkeypatch.setattr(other, "boot_id", lambda: "boot-b")
    again = sources(other)
    inherited = inherit(journal, again)
    assert (inherited.results, inherited.memories) == ([], {})
    with pytest.raises(BaselineOnly):
        again.counters.delta("c", 103, 5.0)
    CounterKeeper(journal, again).keep(now=True)
    assert journal.flush()
    assert journal.last_state(COUNTERS, BOOT) is None


def test_what_is_yet_to_come_is_dropped(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    _kept(journal, HandClock(1000.0))
    earlier = sources(HandClock(900.0))
    assert inherit(journal, earlier).memories == {}
    assert "new baselines" in caplog.text
    with pytest.raises(BaselineOnly):
        earlier.counters.delta("c", 103, 900.0)


def test_garbage_in_the_journal_is_no_memory(journal: Journal) -> None:
    journal.record_state(COUNTERS, ["odd"], BOOT)
    kept = replace(result(*KEY, Verdict.PASS), part="GPU-1")
    journal.record_latest(snapshot(kept), lambda: {KEY: SubjectMemory("h")})
    assert journal.flush()
    inherited = inherit(journal, sources(HandClock(2000.0)))
    assert [r.part for r in inherited.results] == ["GPU-1"]
    assert inherited.memories == {KEY: SubjectMemory("h")}


def test_the_counters_are_not_written_all_the_time(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("agent.daemon_memory.time.monotonic", lambda: now[0])
    keeper = CounterKeeper(journal, sources(HandClock()))
    keeper.keep()
    assert journal.flush()
    assert journal.last_state(COUNTERS, BOOT) is None
    now[0] = KEEP_EVERY_S
    keeper.keep()
    assert journal.flush()
    assert journal.last_state(COUNTERS, BOOT) == {}


def test_the_counters_are_written_when_the_first_gate_opens_and_then_in_their_rhythm(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("agent.daemon_memory.time.monotonic", lambda: now[0])
    given = sources(HandClock())
    keeper = CounterKeeper(journal, given)
    keeper.gate_opened()
    assert journal.flush()
    assert journal.last_state(COUNTERS, BOOT) == {}, "an agent that dies in its first minute leaves baselines"
    with contextlib.suppress(BaselineOnly):
        given.counters.delta("c", 1, 1.0)
    now[0] = KEEP_EVERY_S - 1
    keeper.gate_opened()
    assert journal.flush()
    assert journal.last_state(COUNTERS, BOOT) == {}, "a gate that opens and closes is no reason to write"
    now[0] = KEEP_EVERY_S
    keeper.keep()
    assert journal.flush()
    assert journal.last_state(COUNTERS, BOOT) is not None and "c" in str(journal.last_state(COUNTERS, BOOT))


def test_a_value_that_is_kept_goes_on_where_the_earlier_agent_left_it(journal: Journal) -> None:
    clock = HandClock(1000.0)
    given = sources(clock)
    given.series.record("heat", 40.0, 990.0, 300.0, keep=True)
    given.series.record("heat", 41.0, 1000.0, 300.0, keep=True)
    given.series.record("flag", 1.0, 1000.0, 300.0)
    CounterKeeper(journal, given).keep(now=True)
    assert journal.flush()
    clock.now = 1010.0
    again = sources(clock)
    inherit(journal, again)
    assert again.series.record("heat", 42.0, 1010.0, 300.0).values == [40.0, 41.0, 42.0]
    assert again.series.record("flag", 1.0, 1010.0, 300.0).values == [1.0], "a gap would count as one state"


@pytest.mark.parametrize(
    "kept",
    [
        ["odd"],
        {"heat": []},
        {"heat": [[1000.0, True]]},
        {"heat": [[2000.0, 1.0]]},
        {"heat": [[5.0, 1.0]] * 2},
    ],
)
def test_a_garbled_value_is_none(journal: Journal, kept: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    journal.record_state(SERIES, kept, BOOT)
    assert journal.flush()
    again = sources(HandClock(1500.0))
    inherit(journal, again)
    assert "series start with new baselines" in caplog.text
    assert len(again.series.record("heat", 1.0, 1500.0, 300.0).values) == 1
