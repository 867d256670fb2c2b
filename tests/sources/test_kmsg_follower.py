"""KmsgFollower over a pipe in the kernel's place: backlog, events, overrun, death."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.errors import SourceTimeout, SourceUnavailable
from agent.sources import kmsg
from agent.sources.clock import LiveClock
from agent.sources.kmsg import KmsgFollower
from agent.sources.kmsg_records import ALL_EVENTS, EVENT_NIC, EVENT_XID

XID = "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."
DEADLINE_S = 20.0


class PipeDevice:
    """A pipe that behaves as /dev/kmsg does; `failures` are raised by the next reads."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.failures: list[OSError] = []
        self.closed = False

    def fileno(self) -> int:
        return self.reader

    def read(self) -> bytes:
        if self.failures:
            raise self.failures.pop(0)
        return os.read(self.reader, 16384)

    def close(self) -> None:
        self.closed = True

    def put(self, seq: int, text: str, time_us: int = 1_000_000) -> None:
        os.write(self.writer, f"3,{seq},{time_us},-;{text}\n SUBSYSTEM=pci\n".encode())

    def fail(self, number: int) -> None:
        self.failures.append(OSError(number, os.strerror(number)))
        self.put(999, "wake up")


class Followed:
    def __init__(self) -> None:
        self.device = PipeDevice()
        self.events: list[str] = []
        self.arrived = threading.Event()
        self.follower = KmsgFollower(LiveClock(), on_event=self._event, open_device=lambda: self.device)

    def _event(self, kind: str) -> None:
        self.events.append(kind)
        self.arrived.set()


@pytest.fixture
def followed() -> Iterator[Followed]:
    made = Followed()
    yield made
    made.follower.close()
    for descriptor in (made.device.reader, made.device.writer):
        try:
            os.close(descriptor)
        except OSError as cause:
            assert cause.errno == errno.EBADF  # the test has closed it already


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.002)


def refused(follower: KmsgFollower) -> str:
    try:
        follower.records()
    except SourceUnavailable as cause:
        return str(cause)
    return ""


def test_backlog_is_read_first_and_sends_no_events(followed: Followed) -> None:
    followed.device.put(1, "boring")
    followed.device.put(2, XID)
    followed.follower.start()
    [record] = followed.follower.records()
    assert (record.seq, record.mono_s, record.level, record.text) == (2, 1.0, 3, XID)
    assert followed.events == []


def test_a_record_sends_its_event_and_is_there_by_then(followed: Followed) -> None:
    followed.follower.start()
    assert list(followed.follower.records()) == []
    begun_s = time.monotonic()
    followed.device.put(7, XID)
    assert followed.arrived.wait(DEADLINE_S)
    assert time.monotonic() - begun_s < DEADLINE_S
    assert followed.events == [EVENT_XID]
    [record] = followed.follower.records()
    assert abs(record.mono_s - LiveClock().mono_s()) < DEADLINE_S  # dated by arrival, not by printk's clock
    followed.device.put(8, "mlx5_core 0000:18:00.0 eth0: Link down")
    until(lambda: followed.events == [EVENT_XID, EVENT_NIC])


def test_clear_forgets(followed: Followed) -> None:
    followed.device.put(1, XID)
    followed.follower.start()
    assert followed.follower.records()
    followed.follower.clear(LiveClock().mono_s())
    assert list(followed.follower.records()) == []


def test_overrun_is_missing_evidence_until_cleared(followed: Followed) -> None:
    followed.follower.start()
    followed.follower.records()
    followed.device.fail(errno.EPIPE)
    until(lambda: "were lost" in refused(followed.follower))
    assert set(followed.events) == set(ALL_EVENTS)
    followed.device.put(1000, XID)
    until(lambda: followed.events.count(EVENT_XID) == 2)
    followed.follower.clear(0.0)
    assert [record.seq for record in followed.follower.records()] == [1000]


def test_overrun_while_the_backlog_is_read_is_a_later_start(followed: Followed) -> None:
    followed.device.failures.append(OSError(errno.EPIPE, "overrun"))
    followed.device.put(5, XID)
    followed.follower.start()
    assert [record.seq for record in followed.follower.records()] == [5]


def test_garbled_record_is_missing_evidence(followed: Followed) -> None:
    followed.follower.start()
    os.write(followed.device.writer, b"\xff\xffgarbage\n")
    until(lambda: "were lost" in refused(followed.follower))


def test_end_of_the_log_kills_the_evidence(followed: Followed) -> None:
    followed.device.put(1, XID)
    followed.follower.start()
    assert followed.follower.records()
    os.close(followed.device.writer)
    until(lambda: "has ended" in refused(followed.follower))
    assert set(followed.events) == set(ALL_EVENTS)
    assert followed.device.closed


def test_read_error_kills_the_evidence(followed: Followed) -> None:
    followed.follower.start()
    followed.follower.records()
    followed.device.fail(errno.EIO)
    until(lambda: os.strerror(errno.EIO) in refused(followed.follower))


def test_a_callback_that_raises_kills_the_evidence(followed: Followed) -> None:
    def broken(_kind: str) -> None:
        raise RuntimeError("broken callback")

    device = followed.device
    follower = KmsgFollower(LiveClock(), on_event=broken, open_device=lambda: device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            threading, "excepthook", lambda _args: None
        )  # it raises once more when told of the death
        follower.start()
        follower.records()
        device.put(1, XID)
        until(lambda: "broken callback" in refused(follower))
        follower.close()


def test_not_started_or_closed_is_unavailable(followed: Followed) -> None:
    assert "not been started" in refused(followed.follower)
    followed.follower.start()
    followed.follower.start()
    followed.follower.records()
    followed.follower.close()
    assert "closed" in refused(followed.follower)
    assert followed.events == []


def test_no_permission_says_what_to_do() -> None:
    def no_permission() -> PipeDevice:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    follower = KmsgFollower(LiveClock(), open_device=no_permission)
    follower.start()
    assert "CAP_SYSLOG" in refused(follower)
    follower.close()


def test_no_device_is_unavailable_at_read(tmp_path: Path) -> None:
    follower = KmsgFollower(LiveClock(), path=tmp_path / "kmsg")
    follower.start()
    assert str(tmp_path / "kmsg") in refused(follower)
    follower.close()


def test_backlog_without_an_end_is_a_timeout(monkeypatch: pytest.MonkeyPatch, followed: Followed) -> None:
    begin = threading.Event()
    monkeypatch.setattr(kmsg, "BACKLOG_DEADLINE_S", 0.05)
    device = followed.device

    def late() -> PipeDevice:
        begin.wait(DEADLINE_S)
        return device

    follower = KmsgFollower(LiveClock(), open_device=late)
    follower.start()
    with pytest.raises(SourceTimeout):
        follower.records()
    begin.set()
    follower.close()
