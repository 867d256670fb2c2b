"""The engine's state table."""

from __future__ import annotations

import pytest

from agent.errors import IllegalTransition
from agent.launch.engine_state import EngineEvent, EngineRecord, EventKind, allows, step
from agent.model import EnginePhase


def after(*events: EngineEvent | EventKind) -> EngineRecord:
    """The record after some events, one second apart."""
    record = EngineRecord()
    for now, event in enumerate(events, start=1):
        record = step(record, event if isinstance(event, EngineEvent) else EngineEvent(event), float(now))
    return record


CRASH = (EventKind.START, EventKind.FAULT, EngineEvent(EventKind.GONE, wait_s=5.0, crashes_mono_s=(2.0,)))


def test_the_way_to_traffic() -> None:
    record = after(EngineEvent(EventKind.START, "starting", pid=7), EventKind.HEALTHY, EventKind.WARMED)
    assert (record.phase, record.pid, record.since_mono_s) == (EnginePhase.WARM, 7, 3.0)


def test_a_crash_waits_and_is_counted() -> None:
    record = after(*CRASH)
    assert record.phase is EnginePhase.BACKOFF
    assert record.retry_at_mono_s == 8.0
    assert record.restarts == 1
    assert record.pid is None
    record = step(record, EngineEvent(EventKind.RETRY), 8.0)
    assert (record.phase, record.retry_at_mono_s) == (EnginePhase.ABSENT, None)
    assert record.crashes_mono_s == (2.0,)


def test_too_many_crashes_need_an_operator() -> None:
    record = after(
        EventKind.START, EventKind.FAULT, EngineEvent(EventKind.GONE, wait_s=None, crashes_mono_s=(1.0,))
    )
    assert record.phase is EnginePhase.CRASHLOOP
    assert not allows(record, EventKind.START)
    assert not allows(record, EventKind.RETRY)
    record = step(record, EngineEvent(EventKind.RESET), 9.0)
    assert (record.phase, record.crashes_mono_s) == (EnginePhase.ABSENT, ())


def test_a_stop_after_a_fault_prevents_the_relaunch() -> None:
    record = after(EventKind.START, EventKind.FAULT, EventKind.STOP, EventKind.GONE)
    assert record.phase is EnginePhase.ABSENT
    assert record.restarts == 0


@pytest.mark.parametrize("end", [EventKind.STOP, EventKind.FAULT])
def test_what_survives_sigkill_is_the_end(end: EventKind) -> None:
    record = after(EventKind.START, end, EventKind.SURVIVED)
    assert record.phase is EnginePhase.UNKILLABLE
    assert not allows(record, EventKind.START)


def test_a_reset_while_it_runs_only_forgets_the_crashes() -> None:
    record = after(*CRASH, EventKind.RETRY, EventKind.START, EventKind.HEALTHY, EventKind.RESET)
    assert (record.phase, record.crashes_mono_s) == (EnginePhase.UP, ())


def test_a_note_changes_the_words_only() -> None:
    record = after(EventKind.START, EngineEvent(EventKind.NOTE, "warm-up 1 of 3"))
    assert (record.phase, record.since_mono_s, record.reason) == (EnginePhase.STARTING, 1.0, "warm-up 1 of 3")


def test_every_phase_takes_only_what_its_table_has() -> None:
    for phase in EnginePhase:
        for kind in EventKind:
            record = EngineRecord(phase=phase)
            if allows(record, kind):
                assert isinstance(step(record, EngineEvent(kind), 1.0), EngineRecord)
            else:
                with pytest.raises(IllegalTransition, match=f"{phase} cannot take the event {kind}"):
                    step(record, EngineEvent(kind), 1.0)


def test_no_engine_is_started_beside_another() -> None:
    starters = [phase for phase in EnginePhase if allows(EngineRecord(phase=phase), EventKind.START)]
    assert starters == [EnginePhase.ABSENT]
