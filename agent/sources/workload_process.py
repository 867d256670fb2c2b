"""A workload as a process group of its own: bounded output, ended whole, its shared memory removed.

Its processes are found by their session and by a mark in their environment, which a container's carry too.
The standard input is held open as long as this process lives: the workers end with it, so that nothing stays
on the GPUs when whoever measures is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TypeVar

from agent.errors import SourceUnavailable
from agent.sources.processes import ProcessStat, marked, process, processes
from agent.sources.shared_memory import own_files, remove_unheld
from agent.sources.workload import NoWorkloads, Workload, WorkloadEnd

#: Marks every process of a workload; its value is the start's own.
MARK = "NODEGATE_WORKLOAD"
#: Lines that nobody has fetched yet, and the longest of them: more is no worker's report.
MOST_LINES, LONGEST_LINE_B = 20_000, 16_384
_ERRORS_B = 8_192
_POLL_S = 0.05
#: A look at environments or maps hangs with a process that is stuck in a driver.
_LOOK_S = 5.0
T = TypeVar("T")


class LiveWorkloads(NoWorkloads):
    """Starts workloads on this machine."""

    def start(self, argv: Sequence[str], env: Mapping[str, str], working_dir: str | None) -> Workload:
        """Start one in a process group of its own."""
        token = uuid.uuid4().hex
        try:
            child = subprocess.Popen(
                list(argv),
                env={**env, MARK: token},
                cwd=working_dir or "/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as cause:  # ValueError: a NUL in an argument
            reason = cause.strerror if isinstance(cause, OSError) else str(cause)
            raise SourceUnavailable(f"{argv[0]} cannot be started: {reason}") from cause
        return ProcessWorkload(child, token)


class ProcessWorkload:
    """One workload that runs."""

    def __init__(self, child: subprocess.Popen[bytes], token: str) -> None:
        """Follow its output."""
        self._child = child
        self._mark = f"{MARK}={token}"
        self._started_wall_s = time.time()
        self._lines: deque[str] = deque()
        self._errors = b""
        self._too_much = ""
        self._shared: set[str] = set()
        self._readers = [
            threading.Thread(target=target, name="nodegate-workload", daemon=True)
            for target in (self._read_lines, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    def lines(self) -> list[str]:
        """The whole lines since the last call."""
        if self._too_much:
            raise SourceUnavailable(self._too_much)
        found = []
        while self._lines:
            found.append(self._lines.popleft())
        return found

    def ended(self) -> WorkloadEnd | None:
        """How it ended; its output is then complete."""
        status = self._child.poll()
        if status is None:
            return None
        for reader in self._readers:
            reader.join(timeout=1.0)
        return WorkloadEnd(status, self._errors.decode(errors="replace"))

    def stop(self, deadline_s: float) -> tuple[str, ...]:
        """SIGKILL for all of it: a GPU is given back by the driver, and nothing of a load is worth saving."""
        self.note()
        until_s = time.monotonic() + deadline_s
        alive = self._alive()
        while alive and time.monotonic() < until_s:
            for stat in alive:
                _kill(stat)
            self._child.poll()
            time.sleep(_POLL_S)
            alive = self._alive()
        self._child.poll()
        if not alive:
            _in_time(lambda: remove_unheld(self._shared, self._started_wall_s - 1.0))
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None and not alive:
                pipe.close()
        return tuple(f"process {stat.pid} ({stat.comm}, state {stat.state})" for stat in alive)

    def _alive(self) -> list[ProcessStat]:
        """Its session; once that is empty, whatever else carries its mark (a container's processes)."""
        found = [stat for stat in processes() if stat.session == self._child.pid and not stat.dead]
        if not found:
            found = [stat for stat in _in_time(lambda: marked(self._mark)) or [] if not stat.dead]
        return found

    def note(self) -> None:
        """What its processes map now; they are the only proof of whose a file is."""
        pids = [stat.pid for stat in processes() if stat.session == self._child.pid]
        self._shared |= _in_time(lambda: own_files(pids)) or frozenset()

    def _read_lines(self) -> None:
        stream = self._child.stdout
        assert stream is not None
        rest = b""
        while data := _read(stream):
            *whole, rest = (rest + data).split(b"\n")
            self._lines.extend(line.decode(errors="replace") for line in whole)
            if len(rest) > LONGEST_LINE_B or len(self._lines) > MOST_LINES:
                self._too_much = f"more output than a worker has ({len(self._lines)} lines)"
                return
        if rest:
            self._lines.append(rest.decode(errors="replace"))

    def _read_errors(self) -> None:
        stream = self._child.stderr
        assert stream is not None
        while data := _read(stream):
            self._errors = (self._errors + data)[-_ERRORS_B:]


def _in_time(look: Callable[[], T]) -> T | None:
    """What a look finds that may hang in the kernel; None when it does, and its thread is left to itself."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(look()), name="nodegate-look", daemon=True)
    thread.start()
    thread.join(timeout=_LOOK_S)
    return found[0] if found else None


def _read(stream: IO[bytes]) -> bytes:
    """What is there; nothing at the end, also when the pipe was closed under it."""
    try:
        return os.read(stream.fileno(), 65_536)
    except (OSError, ValueError):
        return b""


def _kill(stat: ProcessStat) -> None:
    """SIGKILL, unless the number is another process's by now."""
    now = process(stat.pid)
    if now is not None and now.key == stat.key:
        try:
            os.kill(stat.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has just gone, which is what was wanted
            return
