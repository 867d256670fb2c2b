"""Secrets of an engine from its env_file: KEY=VALUE lines, read only when nobody else can read the file."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from agent.errors import LaunchError
from agent.secret_path import PREFIX, open_to_others, secret_path

MAX_BYTES = 64 * 1024
_KEY = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of the file (a path or `credential:NAME`); an error names the line and shows no value."""
    try:
        real = secret_path(str(path))
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as cause:
        remedy = "" if str(path).startswith(PREFIX) else "; create it with mode 0600"  # it has its own
        raise LaunchError(f"{path}: cannot be read: {cause.strerror}{remedy}") from cause
    try:
        _refuse_exposed(path, os.fstat(descriptor), real)
        data = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise LaunchError(f"{path}: larger than {MAX_BYTES} bytes; it should hold only KEY=VALUE lines")
    try:
        text = data.decode()
    except UnicodeDecodeError as cause:
        raise LaunchError(f"{path}: not UTF-8 text; it should hold only KEY=VALUE lines") from cause
    return _parse(path, text)


def _refuse_exposed(path: Path, info: os.stat_result, real: Path) -> None:
    """Refuse what another user could have written or can read."""
    if not stat.S_ISREG(info.st_mode):
        raise LaunchError(f"{path}: not a regular file; secrets belong in a file with mode 0600")
    if info.st_uid not in (0, os.geteuid()):
        raise LaunchError(
            f"{path}: owned by uid {info.st_uid}; it must belong to root or to the agent's user"
        )
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o100 or open_to_others(real, mode):
        raise LaunchError(f"{path}: mode is {mode:04o}; run chmod 0600 {path}")


def _parse(path: Path, text: str) -> dict[str, str]:
    """KEY=VALUE lines.

    Blank lines and # comments are skipped, one pair of quotes around a value is dropped.
    """
    values: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not _KEY.match(key):
            raise LaunchError(f"{path}:{number}: not a KEY=VALUE line")
        if "\0" in value:
            raise LaunchError(f"{path}:{number}: the value of {key} has a NUL byte")
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        values[key] = value
    return values
