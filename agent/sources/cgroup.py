"""Control groups (https://docs.kernel.org/admin-guide/cgroup-v2.html): which processes are in one.

Where systemd keeps its groups depends on how the host was booted: all of it version 2, version 2 beside
version 1, or version 1 alone, where a hierarchy without controllers is systemd's own.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
#: Below /sys/fs/cgroup, the one that systemd goes by first.
_TREES = ("", "unified", "systemd")
_NO_SUCH_GROUP = (errno.ENOENT, errno.ENODEV)


def group_folder(group: str, root: Path = CGROUP) -> Path | None:
    """The folder of a group that systemd names; None when it names none or has removed it."""
    name = group.strip("/")
    folders = [root / tree / name for tree in _TREES] if name else []
    return next((folder for folder in folders if (folder / "cgroup.procs").is_file()), None)


def group_pids(group: Path) -> list[int]:
    """The processes of a group and of all groups below it; none when there is no such group.

    A process that SIGKILL cannot end is listed, and with version 1 a zombie is. Raises OSError.
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
    """The control group of this process, as systemd names it; None where that cannot be told."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return None
    groups = {kind: path for _, kind, path in (line.split(":", 2) for line in lines if line.count(":") > 1)}
    return next((path for kind in ("", "name=systemd") if (path := groups.get(kind, "/")) != "/"), None)


def is_system_service(group: str | None) -> bool:
    """Whether a control group is that of a system service, not one of a user's session or user manager."""
    parts = (group or "").strip("/").split("/")
    return parts[-1].endswith(".service") and not any(
        part == "user.slice" or part.startswith("user@") for part in parts
    )
