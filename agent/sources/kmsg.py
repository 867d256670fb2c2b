"""KmsgFollower: a thread that reads /dev/kmsg and keeps what matters (Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from agent.errors import ParseError, SourceTimeout, SourceUnavailable
from agent.sources import Clock, KmsgRecord
from agent.sources.kmsg_records import ALL_EVENTS, KmsgLog, parse_line

#: The kernel answers EINVAL when a record does not fit; its longest is 8 KiB (PRINTKRB_RECORD_MAX).
_READ_B = 16384
#: How long records() waits for the backlog of this boot to have been read.
BACKLOG_DEADLINE_S = 2.0


class KmsgDevice(Protocol):
    """An open kernel log; `read` gives one record, b"" at its end, or raises OSError."""

    def fileno(self) -> int:
        """Descriptor to poll."""

    def read(self) -> bytes:
        """The next record; BlockingIOError when there is none yet."""

    def close(self) -> None:
        """Close it."""


class _DevKmsg:
    """/dev/kmsg, not blocking; reading starts at the oldest record of this boot that the kernel still has."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bytes:
        return os.read(self._fd, _READ_B)

    def close(self) -> None:
        os.close(self._fd)


class KmsgFollower:
    """The kernel log of this boot, followed by a thread; `on_event` is called from it, within milliseconds.

    A record that was overwritten before it was read, or is garbled, is missing evidence: from then on
    records() raises until an operator has looked at the log and cleared it. Once the thread has died it
    raises for good.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        on_event: Callable[[str], None] | None = None,
        path: Path = Path("/dev/kmsg"),
        open_device: Callable[[], KmsgDevice] | None = None,
    ) -> None:
        """Follow `path`, or what `open_device` opens; nothing is opened before start()."""
        self._clock = clock
        self._on_event = on_event or (lambda _kind: None)
        self._open = open_device or (lambda: _DevKmsg(path))
        self._name = str(path)
        self._log = KmsgLog()
        self._backlog_read = threading.Event()
        self._failure: str | None = "its follower has not been started"
        self._lost = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None

    def start(self) -> None:
        """Start following; a log that cannot be opened shows in records(), not here."""
        if self._thread is not None:
            return
        self._failure = None
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="kmsg", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; records() raises afterwards."""
        if self._thread is None or self._wake is None:
            return
        self._closing = True
        os.write(self._wake[1], b"x")
        self._thread.join()
        for descriptor in self._wake:
            os.close(descriptor)
        self._thread = self._wake = None

    def records(self) -> Sequence[KmsgRecord]:
        """The kept records, oldest first. Raises SourceUnavailable, SourceTimeout."""
        if self._failure is None and not self._backlog_read.wait(BACKLOG_DEADLINE_S):
            raise SourceTimeout(f"{self._name} has not been read to its end within {BACKLOG_DEADLINE_S:g} s")
        if self._failure is not None:
            raise SourceUnavailable(f"cannot follow {self._name}: {self._failure}")
        if self._lost:
            raise SourceUnavailable(
                "kernel log records were lost; look at `journalctl -k`, then run `nodegate gate clear`"
            )
        return self._log.records()

    def clear(self, up_to_mono_s: float) -> None:
        """Forget records, and lost records, up to a time."""
        self._log.clear(up_to_mono_s)
        self._lost = False

    def complete_since_mono_s(self) -> float:
        """When the oldest record that the kernel still had was written; 0.0 = reaches back to boot."""
        return self._log.complete_since_mono_s

    def _run(self) -> None:
        try:
            device = self._open()
            try:
                self._follow(device)
            finally:
                device.close()
        except PermissionError as cause:
            self._failure = f"{cause.strerror}; give the agent CAP_SYSLOG and read access"
        except OSError as cause:
            self._failure = cause.strerror or str(cause)
        # The edge of the thread: whatever ended it, the log is no evidence any more and must say so.
        except Exception as defect:  # noqa: BLE001
            self._failure = f"the follower died: {type(defect).__name__}: {defect}"
        finally:
            self._backlog_read.set()
        if not self._closing:
            self._tell_all()

    def _follow(self, device: KmsgDevice) -> None:
        assert self._wake is not None
        poller = select.poll()
        poller.register(device.fileno(), select.POLLIN)
        poller.register(self._wake[0], select.POLLIN)
        while True:
            if not self._read_all(device):
                self._failure = "the log has ended"
                return
            self._backlog_read.set()
            if any(descriptor == self._wake[0] for descriptor, _events in poller.poll()):
                self._failure = "its follower has been closed"
                return

    def _read_all(self, device: KmsgDevice) -> bool:
        """Read until there is nothing more for now; False at the end of the log."""
        while True:
            try:
                data = device.read()
            except BlockingIOError:
                return True
            except OSError as cause:
                if cause.errno != errno.EPIPE:
                    raise
                # Overwritten before it was read. While the backlog is read that is the same as a later start.
                if self._backlog_read.is_set():
                    self._lose()
                continue
            if not data:
                return False
            for line in data.decode(errors="replace").rstrip("\n").split("\n"):
                if not line.startswith(" "):  # dictionary lines of the record before
                    self._take(line)

    def _take(self, line: str) -> None:
        now_mono_s = self._clock.mono_s()
        try:
            record = parse_line(line)
        except ParseError:
            self._lose()
            return
        # printk's clock drifts from CLOCK_BOOTTIME by seconds over weeks: what arrives now is dated now.
        live = self._backlog_read.is_set()
        mono_s = now_mono_s if live else min(record.mono_s, now_mono_s)
        for kind in self._log.add(KmsgRecord(record.seq, mono_s, record.level, record.text)):
            if live:
                self._on_event(kind)

    def _lose(self) -> None:
        """A record is gone or cannot be read: no check may go on as if it had seen the whole log."""
        self._lost = True
        self._tell_all()

    def _tell_all(self) -> None:
        for kind in ALL_EVENTS:
            self._on_event(kind)
