"""What the host itself says besides files: units, file systems, the clock, peers. Protocol and readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent.errors import SourceUnavailable


@dataclass(frozen=True, slots=True)
class UnitState:
    """A systemd unit as `systemctl show` tells it; a unit that does not exist has load_state not-found."""

    name: str
    load_state: str
    active_state: str
    sub_state: str
    restarts: int
    since_mono_s: float | None = None


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Room on a file system (statvfs(3)); free is what an unprivileged process may use."""

    total_b: int
    free_b: int
    total_inodes: int
    free_inodes: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class MountAnswer:
    """Whether a mounted file system answers: a stale NFS mount is in the table and answers nothing.

    `answered` False: no answer within the deadline, or ESTALE or EIO; `problem` says which. `marker` is
    whether the file asked for exists, None when none was asked for.
    """

    answered: bool
    latency_s: float
    problem: str = ""
    marker: bool | None = None


@dataclass(frozen=True, slots=True)
class ClockSync:
    """The kernel's clock discipline (adjtimex(2)): STA_UNSYNC, offset and estimated error in seconds."""

    synchronised: bool
    offset_s: float
    max_error_s: float


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a TCP port accepted a connection; `problem` is the reason if not."""

    accepted: bool
    latency_s: float
    problem: str = ""


class Host(Protocol):
    """The host; each call has its own deadline and raises SourceTimeout or SourceUnavailable."""

    def unit(self, name: str) -> UnitState:
        """State of a systemd unit."""

    def disk(self, path: str) -> DiskSpace:
        """Room on the file system of a path. Raises DeviceAbsent when the path is not there."""

    def mount(self, path: str, marker: str | None = None) -> MountAnswer:
        """Whether the file system mounted at a path answers; never hangs longer than its deadline."""

    def clock_sync(self) -> ClockSync:
        """Whether the clock is synchronised."""

    def reach(self, host: str, port: int) -> Reach:
        """Try one TCP connection and close it."""


class NoHost:
    """A host of which nothing is known; what sources without one answer."""

    def unit(self, name: str) -> UnitState:
        """Raises SourceUnavailable."""
        raise SourceUnavailable(f"nothing is known of unit {name} here")

    def disk(self, path: str) -> DiskSpace:
        """Raises SourceUnavailable."""
        raise SourceUnavailable(f"nothing is known of the file system of {path} here")

    def mount(self, path: str, marker: str | None = None) -> MountAnswer:
        """Raises SourceUnavailable."""
        del marker
        raise SourceUnavailable(f"nothing is known of the mount at {path} here")

    def clock_sync(self) -> ClockSync:
        """Raises SourceUnavailable."""
        raise SourceUnavailable("nothing is known of the clock here")

    def reach(self, host: str, port: int) -> Reach:
        """Raises SourceUnavailable."""
        raise SourceUnavailable(f"nothing is known of port {port} of {host} here")
