"""The key that signs the members' status: a file that nobody but the agent may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from agent.errors import ConfigError
from agent.secret_path import open_to_others, secret_path

MIN_BYTES = 16
MAX_BYTES = 4096
_MAKE = "make one with: head -c 32 /dev/urandom | base64 > FILE; chmod 0600 FILE, and copy it to all members"


def read_key(name: str) -> bytes:
    """The key, without the white space around it. ConfigError says what is wrong and never shows it."""
    path = key_path(name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as cause:
        raise ConfigError(
            f"the group's key cannot be read: {cause.strerror}", where=str(path), remedy=_MAKE
        ) from cause
    try:
        _refuse_exposed(path, os.fstat(descriptor))
        key = os.read(descriptor, MAX_BYTES + 1).strip()
    except OSError as cause:
        raise ConfigError(
            f"the group's key cannot be read: {cause.strerror}", where=str(path), remedy=_MAKE
        ) from cause
    finally:
        os.close(descriptor)
    if not MIN_BYTES <= len(key) <= MAX_BYTES:
        raise ConfigError(
            f"the group's key has {len(key)} bytes, {MIN_BYTES} to {MAX_BYTES} are needed",
            where=str(path),
            remedy=_MAKE,
        )
    return key


def _refuse_exposed(path: Path, info: os.stat_result) -> None:
    """Refuse a file that another user could have written or can read."""
    mode = stat.S_IMODE(info.st_mode)
    if not stat.S_ISREG(info.st_mode):
        problem = "the group's key is not in a regular file"
    elif info.st_uid not in (0, os.geteuid()):
        problem = f"the group's key is owned by uid {info.st_uid}, not by root or the agent's user"
    elif mode & 0o100 or open_to_others(path, mode):
        problem = f"the group's key has mode {mode:04o}: others can read it"
    else:
        return
    raise ConfigError(problem, where=str(path), remedy=f"run chmod 0600 {path}, owned by the agent's user")


def key_path(name: str) -> Path:
    """The file that a key_file names; `credential:NAME` is one that systemd gives to the unit."""
    try:
        return secret_path(name)
    except OSError as cause:
        raise ConfigError(
            f"group.key_file: {name}: {cause.strerror}", remedy="put it there, or name a file"
        ) from cause
