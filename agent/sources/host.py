"""LiveHost: this machine's units, file systems, clock and peers; whatever may hang has a deadline.

systemctl(1), statvfs(3), adjtimex(2), connect(2). A mount is asked by a child process, because only a process
can be killed: a thread that hangs in a dead NFS server stays.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import NamedTuple

from agent.errors import DeviceAbsent, ParseError, SourceTimeout, SourceUnavailable
from agent.sources.command import Commands
from agent.sources.host_calls import SpareCalls
from agent.sources.host_clock import read_clock_sync
from agent.sources.host_reading import ClockSync, DiskSpace, MountAnswer, Reach, UnitState
from agent.sources.host_units import PROPERTIES, parse_unit
from agent.sources.mount_table import file_system_read_only

UNIT_DEADLINE_S = 3.0
DISK_DEADLINE_S = 2.0
MOUNT_DEADLINE_S = 3.0
REACH_DEADLINE_S = 2.0
_EXCERPT_CHARS = 160

#: Asks the server of a file system (statvfs is not answered from a cache), then looks for the marker.
_ASK_MOUNT = """
import errno, json, os, sys
path, marker = sys.argv[1], sys.argv[2]
answer = {"marker": None}
try:
    os.statvfs(path)
    if marker:
        try:
            os.stat(path + "/" + marker)
            answer["marker"] = True
        except (FileNotFoundError, NotADirectoryError):
            answer["marker"] = False
except OSError as cause:
    answer = {"errno": errno.errorcode.get(cause.errno, str(cause.errno)), "problem": cause.strerror or ""}
print(json.dumps(answer))
"""
#: What says nothing of the file system itself.
_NOT_THE_MOUNTS_FAULT = frozenset({"EACCES", "EPERM", "EMFILE", "ENFILE", "ENOMEM"})
_NOT_THE_PEERS_FAULT = (PermissionError, MemoryError)


class LiveHost:
    """This machine; safe to use from many threads."""

    def __init__(self, *, systemctl: str = "systemctl", mount_probe: tuple[str, ...] | None = None) -> None:
        """Ask units with `systemctl` and mounts with `mount_probe PATH MARKER` (tests give their own)."""
        self._commands = Commands()
        self._calls = SpareCalls()
        self._systemctl = systemctl
        self._mount_probe = mount_probe or (sys.executable, "-I", "-S", "-c", _ASK_MOUNT)

    def unit(self, name: str) -> UnitState:
        """State of a systemd unit. Raises SourceUnavailable where there is no systemd, SourceTimeout."""
        argv = [self._systemctl, "show", f"--property={','.join(PROPERTIES)}", "--", name]
        output = self._commands.run(argv, deadline_s=UNIT_DEADLINE_S, key=f"systemctl show {name}")
        if output.status != 0:
            reason = " ".join(output.errors.split())[:_EXCERPT_CHARS]
            raise SourceUnavailable(f"systemctl show {name}: {reason or f'exit status {output.status}'}")
        asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        return parse_unit(name, output.text, asleep_s)

    def disk(self, path: str) -> DiskSpace:
        """Room on the file system of a path. Raises DeviceAbsent, SourceTimeout, SourceUnavailable."""
        try:
            found, read_only = self._calls.call(f"statvfs {path}", lambda: _ask_disk(path), DISK_DEADLINE_S)
        except (FileNotFoundError, NotADirectoryError) as cause:
            raise DeviceAbsent(f"{path} is not there") from cause
        except (OSError, ValueError) as cause:
            reason = cause.strerror if isinstance(cause, OSError) else str(cause)
            raise SourceUnavailable(f"statvfs {path}: {reason}") from cause
        return DiskSpace(
            total_b=found.f_blocks * found.f_frsize,
            free_b=found.f_bavail * found.f_frsize,
            total_inodes=found.f_files,
            free_inodes=found.f_favail,
            read_only=read_only,
        )

    def mount(self, path: str, marker: str | None = None) -> MountAnswer:
        """Whether the file system at a path answers. Raises SourceUnavailable when it cannot be asked."""
        started_s = time.monotonic()
        argv = [*self._mount_probe, path, marker or ""]
        try:
            output = self._commands.run(argv, deadline_s=MOUNT_DEADLINE_S, key=f"statvfs {path}")
        except SourceTimeout as cause:
            return MountAnswer(False, time.monotonic() - started_s, str(cause))
        answer = _mount_words(path, output.text, output.errors)
        if answer.errno in _NOT_THE_MOUNTS_FAULT:
            raise SourceUnavailable(f"{path} cannot be asked: {answer.problem}")
        if answer.errno:
            return MountAnswer(False, output.took_s, f"{answer.problem} ({answer.errno})")
        return MountAnswer(True, output.took_s, marker=answer.marker)

    def clock_sync(self) -> ClockSync:
        """Whether the kernel's clock is synchronised. Raises SourceUnavailable."""
        return read_clock_sync()

    def reach(self, host: str, port: int) -> Reach:
        """Connect and close. Not accepted: refused, no route, no answer, no such name."""
        started_s = time.monotonic()
        # Name resolution has no deadline of its own: the whole is given up a little after connect would be.
        whole_s = REACH_DEADLINE_S + 0.5
        try:
            self._calls.call(f"connect {host}:{port}", lambda: _connect(host, port), whole_s)
        except SourceTimeout as cause:
            return Reach(False, time.monotonic() - started_s, str(cause).partition(": ")[2])
        except TimeoutError:
            problem = f"no answer within {REACH_DEADLINE_S:g} s"
            return Reach(False, time.monotonic() - started_s, problem)
        except _NOT_THE_PEERS_FAULT as cause:
            raise SourceUnavailable(f"cannot connect to {host}:{port}: {cause}") from cause
        except (OSError, ValueError) as cause:
            problem = (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
            return Reach(False, time.monotonic() - started_s, problem.lower())
        return Reach(True, time.monotonic() - started_s)


def _ask_disk(path: str) -> tuple[os.statvfs_result, bool]:
    """Room, and whether the file system is read-only, not only the agent's view of it."""
    found = os.statvfs(path)
    return found, bool(found.f_flag & os.ST_RDONLY) and file_system_read_only(path)


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=REACH_DEADLINE_S).close()


class _MountWords(NamedTuple):
    """The mount probe's answer: an error by name and text, or the marker."""

    errno: str
    problem: str
    marker: bool | None


def _mount_words(path: str, text: str, errors: str) -> _MountWords:
    """Read the probe's answer. Raises ParseError."""
    try:
        answer = json.loads(text)
        words = _MountWords(answer.get("errno", ""), answer.get("problem", ""), answer.get("marker"))
    except (ValueError, AttributeError) as cause:
        reason = " ".join((errors or text).split())[-_EXCERPT_CHARS:]
        raise ParseError(f"asking whether {path} answers went wrong: {reason or 'no answer'}") from cause
    if words.marker not in (True, False, None) or not isinstance(words.errno, str):
        raise ParseError(f"asking whether {path} answers gave {text[:_EXCERPT_CHARS]!r}")
    return words
