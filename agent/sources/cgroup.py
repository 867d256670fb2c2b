"""Control groups, version 2 (https://docs.kernel.org/admin-guide/cgroup-v2.html): who is in one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
_NO_SUCH_GROUP = (errno.ENOENT, errno.ENODEV)


def group_pids(group: Path) -> list[int]:
    """The processes of a group and of all groups below it; none when there is no such group.

    A zombie is not listed, a process that SIGKILL cannot end is. Raises OSError.
    """
    pids: list[int] = []
    for folder, _, files in os.walk(group, onerror=_raise_unless_gone):
        if "cgroup.procs" in files:
            pids += _listed(Path(folder) / "cgroup.procs")
    return pids


def _listed(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split() if word.isdigit()]
    except OSError as cause:
        _raise_unless_gone(cause)
        return []


def _raise_unless_gone(cause: OSError) -> None:
    """A group that is removed while it is read is empty."""
    if cause.errno not in _NO_SUCH_GROUP:
        raise cause


def own_group(proc: Path = Path("/proc")) -> str | None:
    """The control group of this process, as systemd names it; None without control groups of version 2."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return None
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::/")), None)


def is_system_service(group: str | None) -> bool:
    """Whether a control group is that of a system service, not one of a user's session or user manager."""
    parts = (group or "").strip("/").split("/")
    return parts[-1].endswith(".service") and not any(
        part == "user.slice" or part.startswith("user@") for part in parts
    )
