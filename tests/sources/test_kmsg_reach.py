"""How far back the kernel log reaches: the kernel numbers its records from 0 at boot."""

from pathlib import Path

from agent.sources import KmsgRecord
from agent.sources.clock import LiveClock
from agent.sources.kmsg import KmsgFollower
from agent.sources.kmsg_records import KmsgLog
from agent.sources.replay import replay_sources


def log_of(*records: KmsgRecord) -> KmsgLog:
    log = KmsgLog()
    for record in records:
        log.add(record)
    return log


def test_a_log_from_boot_is_whole() -> None:
    log = log_of(KmsgRecord(0, 0.0, 5, "Linux version"), KmsgRecord(7, 9.0, 3, "NVRM: loading"))
    assert log.complete_since_mono_s == 0.0


def test_a_ring_that_was_full_is_whole_since_its_oldest_record_whatever_that_says() -> None:
    log = log_of(KmsgRecord(4711, 7200.0, 6, "usb 1-1: noise"), KmsgRecord(4712, 7300.0, 3, "NVRM: GPU"))
    assert log.complete_since_mono_s == 7200.0
    assert [record.seq for record in log.records()] == [4712]


def test_clearing_makes_a_log_no_longer() -> None:
    log = log_of(KmsgRecord(4711, 7200.0, 6, "noise"))
    log.clear(9000.0)
    assert log.complete_since_mono_s == 7200.0


def test_an_empty_log_lacks_nothing() -> None:
    assert KmsgLog().complete_since_mono_s == 0.0
    assert KmsgFollower(LiveClock()).complete_since_mono_s() == 0.0


def test_a_replay_holds_only_what_matters_and_claims_no_more() -> None:
    node = Path(__file__).parents[1] / "nodes/h200-x2-live"
    assert replay_sources(node, None).sources.kmsg.complete_since_mono_s() == 0.0
