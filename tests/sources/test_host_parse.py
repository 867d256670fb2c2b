"""What systemctl and adjtimex say, and what the kernel log says of the host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ParseError
from agent.sources import KmsgRecord
from agent.sources.host_clock import STA_NANO, STA_UNSYNC, Timex, clock_sync_of
from agent.sources.host_units import parse_unit
from agent.sources.kmsg_host import family_of
from agent.sources.kmsg_records import EVENT_HOST, EVENT_NIC, PER_HOST_FAMILY, KmsgLog, event_kinds

SHOWN = """LoadState=loaded
ActiveState=active
SubState=running
NRestarts=3
ActiveEnterTimestampMonotonic=12500000
"""


def test_a_service() -> None:
    unit = parse_unit("x.service", SHOWN, asleep_s=10.0)
    assert (unit.load_state, unit.active_state, unit.sub_state) == ("loaded", "active", "running")
    assert unit.restarts == 3
    assert unit.since_mono_s == 22.5


def test_a_unit_that_does_not_exist_and_was_never_active() -> None:
    text = "LoadState=not-found\nActiveState=inactive\nSubState=dead\nActiveEnterTimestampMonotonic=0\n"
    unit = parse_unit("x.mount", text, asleep_s=0.0)
    assert unit.load_state == "not-found"
    assert unit.restarts == 0
    assert unit.since_mono_s is None


@pytest.mark.parametrize(
    "text", ["", "LoadState=loaded", SHOWN.replace("=3", "=many"), SHOWN.replace("=active", "=")]
)
def test_half_an_answer_is_none(text: str) -> None:
    with pytest.raises(ParseError, match=r"x\.service"):
        parse_unit("x.service", text, 0.0)


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parse_unit("x.service", text, 0.0)
    except ParseError as cause:
        assert "\n" not in str(cause)


def test_clock_units() -> None:
    nanoseconds = clock_sync_of(Timex(offset=-1500, maxerror=2000, status=STA_NANO))
    assert nanoseconds.synchronised
    assert nanoseconds.offset_s == pytest.approx(-1.5e-6)
    assert nanoseconds.max_error_s == pytest.approx(0.002)
    assert clock_sync_of(Timex(offset=1500)).offset_s == pytest.approx(1.5e-3)
    assert not clock_sync_of(Timex(status=STA_UNSYNC)).synchronised


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:4711]", "lockup"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "lockup"),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "lockup"),
        ("rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... }", "lockup"),
        ("INFO: task nvidia-smi:4711 blocked for more than 122 seconds.", "hung_task"),
        ("INFO: task kworker/u8:3:99 <writer> blocked on a mutex", None),
        ("Out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB", "oom"),
        ("Memory cgroup out of memory: Killed process 4242 (VLLM::Worker_TP) total-vm:1kB", "oom"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0", "uncorrected"),
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400", "uncorrected"),
        ("{1}[Hardware Error]: event severity: fatal", "uncorrected"),
        ("[Hardware Error]: event severity: fatal", "previous_boot"),
        ("BERT: Error records from previous boot:", "previous_boot"),
        ("[Hardware Error]: Uncorrected, software restartable error.", "uncorrected"),
        ("Memory failure: 0x1234: recovery action for dirty LRU page: Recovered", "uncorrected"),
        ("EDAC MC1: 7 CE memory scrubbing error on DIMM_B1", "corrected"),
        ("{7}[Hardware Error]: event severity: corrected", "corrected"),
        ("mce: [Hardware Error]: Machine check events logged", "corrected"),
        ("[Hardware Error]: Corrected error, no action required.", "corrected"),
        ("NVRM: API mismatch: the client has the version 575.51, but this kernel module has 580", "driver"),
        ("blk_update_request: I/O error, dev sda, sector 12", "disk"),
        ("critical: Buffer I/O error on dev nvme0n1p2, logical block 3", "disk"),
        ("nvme nvme0: I/O 12 QID 3 timeout, aborting", "disk"),
        ("nvme nvme1: controller is down; will reset: CSTS=0xffffffff", "disk"),
        ("EXT4-fs error (device nvme0n1p2): ext4_lookup:1855: inode #2", "disk"),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "disk"),
        ("nvme nvme0: 8/0/0 default/read/poll queues", None),
        ("EXT4-fs (sda1): mounted filesystem with ordered data mode", None),
        ("pcieport 0000:15:01.0: AER: Uncorrected (Non-Fatal) error received", None),
        ("pcieport 0000:15:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", None),
        ("NVRM: Xid (PCI:0000:05:00): 48, pid=1, DBE (double bit error) Uncorrected", None),
        ("systemd[1]: Started Journal Service", None),
    ],
)
def test_families(text: str, family: str | None) -> None:
    assert family_of(text) == family
    assert (EVENT_HOST in event_kinds(text)) is (family is not None)


@given(st.text(max_size=300))
def test_any_line_has_a_family_or_none(text: str) -> None:
    family_of(text)


def test_a_storm_of_one_family_hides_no_other_and_fills_no_memory() -> None:
    log = KmsgLog()
    log.add(KmsgRecord(0, 0.0, 3, "EDAC MC0: 1 UE memory read error on DIMM_A1"))
    for seq in range(1, 5000):
        log.add(KmsgRecord(seq, float(seq), 3, f"I/O error, dev nvme0n1, sector {seq}"))
        log.add(KmsgRecord(10_000 + seq, float(seq), 3, f"mlx5_core 0000:18:00.0: line {seq}"))
    kept = log.records()
    assert kept[0].text.startswith("EDAC MC0: 1 UE")
    assert sum("I/O error" in record.text for record in kept) == PER_HOST_FAMILY


def test_a_line_of_a_device_about_the_host_is_both() -> None:
    text = "watchdog: BUG: soft lockup - CPU#1 stuck for 23s! [mlx5_health:77]"
    assert event_kinds(text) == (EVENT_NIC, EVENT_HOST)
