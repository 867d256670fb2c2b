"""`live` in node.yaml: parts of a node folder that are read from this machine each time, not from the folder.

For test hosts whose hardware is a stand-in: units and mounts are real there, sysfs and NVML are files that
stand-in tools change. What comes out is SIMULATED as ever. A folder with such a key is trusted like a
program, so it must belong to root or to who runs nodegate and be writable by nobody else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from agent.errors import ConfigError
from agent.sources.fs import is_plain_path
from agent.sources.node_model import Live


def check_live(live: Live, where: Path) -> None:
    """Raise ConfigError, naming the key, for parts that cannot be read or a file that others can write."""
    for prefix, target in live.tree.items():
        if not is_plain_path(prefix):
            raise ConfigError(f"live.tree: {prefix!r} is not a path under the root", where=str(where))
        try:
            there = Path(target).exists() and Path(target).name != ""
        except (OSError, ValueError):
            there = False
        if not there:
            raise ConfigError(
                f"live.tree.{prefix}: {target[:200]!r} is not there",
                where=str(where),
                remedy="name a folder or file of this machine",
            )
    try:
        found = [os.stat(path) for path in (where, where.parent)]  # noqa: PTH116
    except OSError as cause:
        raise ConfigError(f"cannot read it: {cause.strerror}", where=str(where)) from cause
    owners = {0, os.geteuid()}
    if any(one.st_uid not in owners or stat.S_IMODE(one.st_mode) & 0o022 for one in found):
        raise ConfigError(
            "live: only in a folder that belongs to root or to you and that nobody else can write",
            where=str(where),
            remedy="chown it and chmod go-w, or take the key away",
        )
