"""Kernel log records: the line format, what matters, and a log that no storm can flush."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ParseError
from agent.sources import KmsgRecord
from agent.sources.kmsg_records import (
    EVENT_NIC,
    EVENT_PCIE,
    EVENT_XID,
    PER_KIND,
    PER_XID_KEY,
    KmsgLog,
    event_kinds,
    format_line,
    matters,
    parse_line,
)

XID = "NVRM: Xid (PCI:0000:05:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def test_parses_a_record_of_the_kernel() -> None:
    line = f"3,1204,98765432101,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:05:00.0\n"
    assert parse_line(line) == KmsgRecord(1204, 98765.432101, 3, XID)


@pytest.mark.parametrize(
    ("line", "level"),
    [("6,1,2,-;x", 6), ("30,1,2,c;x", 6), ("12,1,2,-,caller=T1;x", 4), ("4,1,2,;a;b", 4)],
)
def test_prefix_flags_and_facility(line: str, level: int) -> None:
    assert parse_line(line).level == level


def test_text_may_hold_semicolons() -> None:
    assert parse_line("4,1,2,-;a;b").text == "a;b"


@pytest.mark.parametrize("line", ["", "x", "6,1,2", "6,1,-2,-;x", "6,one,2,-;x", ";", "²,1,2,-;x", "6,1,2,-"])
def test_garbled_lines_are_refused(line: str) -> None:
    with pytest.raises(ParseError, match="kernel log record"):
        parse_line(line)


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        record = parse_line(text)
    except ParseError:
        return
    assert 0 <= record.level <= 7


@given(
    st.integers(0, 10**15),
    st.integers(0, 10**15),
    st.integers(0, 7),
    st.text(st.characters(exclude_characters="\n")),
)
def test_round_trip(seq: int, time_us: int, level: int, text: str) -> None:
    record = parse_line(f"{level},{seq},{time_us},-;{text}")
    again = parse_line(format_line(record))
    assert (again.seq, again.level, again.text) == (seq, level, text)
    assert again.mono_s == pytest.approx(time_us / 1e6)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (XID, (EVENT_XID,)),
        ("NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.", (EVENT_XID,)),
        ("nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", (EVENT_XID,)),
        ("mlx5_core 0000:18:00.0 eth0: Link down", (EVENT_NIC,)),
        ("NETDEV WATCHDOG: CPU: 3: transmit queue 1 timed out 5012 ms", (EVENT_NIC,)),
        ("mlx5_core 0000:18:00.0: 252.048 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x16 link",
         (EVENT_NIC, EVENT_PCIE)),
        ("pcieport 0000:15:01.0: AER: Corrected error received: 0000:17:00.0", (EVENT_PCIE,)),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04", ()),
        ("systemd[1]: Started Journal Service", ()),
    ],
)  # fmt: skip
def test_events_of_a_record(text: str, kinds: tuple[str, ...]) -> None:
    assert event_kinds(text) == kinds
    assert matters(text) is (bool(kinds) or "NVRM" in text)


def record(seq: int, text: str = XID) -> KmsgRecord:
    return KmsgRecord(seq, float(seq), 3, text)


def test_log_keeps_only_what_matters_in_order() -> None:
    log = KmsgLog()
    assert log.add(record(2)) == (EVENT_XID,)
    assert log.add(record(1, "mlx5_core 0000:18:00.0: x")) == (EVENT_NIC,)
    assert log.add(record(3, "audit: whatever")) == ()
    assert [r.seq for r in log.records()] == [1, 2]


def test_a_storm_of_one_fault_hides_no_other() -> None:
    log = KmsgLog()
    log.add(record(0))
    for seq in range(1, 10_000):
        log.add(record(seq, "NVRM: Xid (PCI:0000:06:00): 31, pid=7, MMU Fault"))
        log.add(record(20_000 + seq, "pcieport 0000:15:01.0: AER: Corrected error received"))
    kept = log.records()
    assert kept[0].text == XID
    assert len(kept) == 1 + PER_XID_KEY + PER_KIND


@pytest.mark.parametrize(
    ("fault", "storm"),
    [
        (
            "NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:0b:00 GPU-I:05): 13, pid=%d",
        ),
        (
            "NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.",
            "NVRM: GPU 0000:06:00.0: fallen off the bus %d",
        ),
        (
            "NVRM: Xid (PCI:0000:05:00): 145, RLW Fatal XC0",
            "NVRM: Xid (PCI:0000:05:00): 145, RLW Nonfatal XC%d",
        ),
        ("NVRM: Xid (PCI:0000:05:00): 31, x 0x1f", "NVRM: Xid (PCI:0000:06:00): 31, pid=1, name=a%d, x 0x%d"),
        (
            "NVRM: Xid (PCI:0000:05:00): 74, link 3 (0x0, 0x0, 0x8, 0x0, 0x0, 0x0, 0x0)",
            "NVRM: Xid (PCI:0000:05:00): 74, link %d (0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        ),
    ],
)
def test_no_storm_hides_another_fault(fault: str, storm: str) -> None:
    log = KmsgLog()
    log.add(record(0, fault))
    for seq in range(1, 500):
        log.add(record(seq, storm.replace("%d", str(seq))))
    assert log.records()[0].text == fault
    assert len(log.records()) <= 1 + 2 * PER_XID_KEY


def test_made_up_gpus_cannot_fill_the_memory() -> None:
    log = KmsgLog()
    for seq in range(6000):
        log.add(record(seq, f"NVRM: Xid (PCI:{seq:04x}:06:00): 31, x"))
    assert len(log.records()) <= 4096 + PER_XID_KEY


def test_made_up_wordings_cannot_fill_the_memory() -> None:
    log = KmsgLog()
    for seq in range(6000):
        log.add(record(seq, f"NVRM: Xid (PCI:0000:06:00): 31, {'y' * (seq % 100)} w{seq}w"))
    assert len(log.records()) <= 17 * PER_XID_KEY


def test_cleared_records_stay_away() -> None:
    log = KmsgLog()
    log.add(record(1))
    log.add(record(5))
    log.clear(3.0)
    log.clear(2.0)
    assert [r.seq for r in log.records()] == [5]
