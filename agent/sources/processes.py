"""Processes of this machine from /proc/PID/stat (https://docs.kernel.org/filesystems/proc.html#id2).

Only `stat` is read: unlike `cmdline` and `environ` it needs no lock of the process's memory, so that a
process stuck in a driver cannot hang its reader. `marked` is the exception and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One process; (pid, start_ticks) names it for good, a pid alone is used again."""

    pid: int
    ppid: int
    session: int
    state: str
    threads: int
    start_ticks: int
    comm: str

    @property
    def key(self) -> tuple[int, int]:
        """What no other process of this boot has."""
        return self.pid, self.start_ticks

    @property
    def dead(self) -> bool:
        """Whether nothing of it runs.

        A zombie leader with threads left (one stuck in a driver) is not dead.
        """
        return self.state in ("Z", "X") and self.threads <= 1


def parse_stat(text: str) -> ProcessStat | None:
    """Read a stat line; the name in parentheses may itself have blanks and parentheses."""
    head, _, tail = text.rpartition(")")
    pid, _, comm = head.partition(" (")
    fields = tail.split()
    if not pid.isdigit() or len(fields) < 20:
        return None
    return ProcessStat(
        pid=int(pid),
        ppid=int(fields[1]),
        session=int(fields[3]),
        state=fields[0],
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        comm=comm,
    )


def ended(key: tuple[int, int]) -> ProcessStat:
    """What stands for a process that ended before it was looked at."""
    return ProcessStat(key[0], 0, key[0], "X", 0, key[1], "?")


def process(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """One process, None when there is none of that number."""
    try:
        return parse_stat((proc / str(pid) / "stat").read_text(errors="replace"))
    except OSError:  # it ended, before or while it was read
        return None


def processes(proc: Path = PROC) -> Iterator[ProcessStat]:
    """Every process that can be seen now."""
    for entry in proc.iterdir():
        if entry.name.isdigit() and (found := process(int(entry.name), proc)) is not None:
            yield found


def marked(prefix: str, proc: Path = PROC) -> list[ProcessStat]:
    """Processes that were started with an environment variable that begins with `prefix` (`NAME=value...`).

    Reads `environ`, which hangs on a process whose memory lock is held: call it in a thread that may be
    given up.
    """
    return [stat for stat in processes(proc) if carries(stat, prefix, proc)]


def carries(stat: ProcessStat, prefix: str, proc: Path = PROC) -> bool:
    """Whether one process was started with such a variable. It may hang as `marked` may."""
    try:
        variables = (proc / str(stat.pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # ended meanwhile, or another user's
        return False
    return any(variable.startswith(prefix.encode()) for variable in variables)
