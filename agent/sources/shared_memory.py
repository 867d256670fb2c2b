"""POSIX shared memory of processes: files in /dev/shm that they map (shm_overview(7), proc_pid_maps(5)).

An engine that is killed cannot remove its own: vLLM leaves some each time, and on a big node such a file is
tens of MiB of memory that nobody gives back before the next boot.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from agent.sources.processes import PROC

SHM = Path("/dev/shm")  # noqa: S108 (looked at, not made)
logger = logging.getLogger("nodegate.launch")
_GONE = " (deleted)"


def mapped_files(pid: int, shm: Path = SHM, proc: Path = PROC) -> frozenset[str]:
    """Names in `shm` that a process maps now; none when it has ended or is another user's.

    Reads `maps`, which hangs on a process whose memory lock is held: call it in a thread that can be given
    up.
    """
    return frozenset(name for name, _ in _mapped(pid, shm, proc))


def own_files(pids: Iterable[int], shm: Path = SHM, proc: Path = PROC) -> frozenset[str]:
    """Those of the mapped names that are this `shm`'s files: a container may have a /dev/shm of its own."""
    found = {pair for pid in pids for pair in _mapped(pid, shm, proc)}
    return frozenset(name for name, inode in found if _inode(shm / name) == inode)


def _mapped(pid: int, shm: Path, proc: Path) -> set[tuple[str, int]]:
    """Name and inode of what a process maps at the top of `shm`."""
    prefix = f"{shm}/"
    try:
        lines = (proc / str(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        words = line.split(maxsplit=5)  # address, rights, offset, device, inode, path
        path = words[5] if len(words) > 5 else ""
        name = path.removeprefix(prefix)
        if path.startswith(prefix) and "/" not in name and not path.endswith(_GONE) and words[4].isdecimal():
            found.add((name, int(words[4])))
    return found


def _inode(file: Path) -> int:
    """Its inode; -1 where it is not there."""
    try:
        return file.lstat().st_ino
    except OSError:
        return -1


def mapped_by(pids: Iterable[int], shm: Path = SHM, proc: Path = PROC) -> frozenset[str]:
    """Names in `shm` that any of the processes maps now."""
    return frozenset[str]().union(*(mapped_files(pid, shm, proc) for pid in pids))


def _written_s(file: Path) -> float:
    """When it was last written; 0.0 for one that is not there."""
    try:
        return file.lstat().st_mtime
    except OSError:
        return 0.0


def remove_unheld(
    names: Collection[str], since_wall_s: float, shm: Path = SHM, proc: Path = PROC
) -> tuple[str, ...]:
    """Remove those of the files that no living process maps any more; what was removed, sorted.

    One last written before `since_wall_s` was there before the engine and is not its to take along.
    """
    there = {name for name in names if _written_s(shm / name) >= since_wall_s}
    if not there:
        return ()
    pids = (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    removed = []
    for name in sorted(there - mapped_by(pids, shm, proc)):
        try:
            (shm / name).unlink(missing_ok=True)
        except OSError as cause:  # another user's: told, and left to its owner
            logger.warning("shared memory %s cannot be removed: %s", shm / name, cause.strerror)
            continue
        removed.append(name)
    return tuple(removed)
