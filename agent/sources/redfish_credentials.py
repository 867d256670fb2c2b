"""Credentials of a Redfish service, from a file that nobody else can read; they are shown nowhere."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import SourceUnavailable
from agent.secret_path import open_to_others, secret_path

#: The service's user, to whom role agent gives the file.
AGENT_USER = "nodegate"
MAX_FILE_BYTES = 4096
_REMEDY = "write two lines, `username: ...` and `password: ...`"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who logs in; neither part is ever part of a text."""

    username: str = field(repr=False)
    password: str = field(repr=False)


def read_credentials(path: str) -> Credentials:
    """Read the file. Raises SourceUnavailable with one line that names the file and shows none of it."""
    try:
        # Not blocking: a pipe in the place of the file must be refused, not waited for.
        real = secret_path(path)
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as cause:
        raise SourceUnavailable(f"{path}: {cause.strerror or 'cannot be opened'}") from None
    try:
        _refuse_readable_by_others(path, os.fstat(descriptor), real)
        data = os.read(descriptor, MAX_FILE_BYTES + 1)
    except OSError as cause:
        raise SourceUnavailable(f"{path}: {cause.strerror or 'cannot be read'}") from None
    finally:
        os.close(descriptor)
    return _parse(path, data)


def _refuse_readable_by_others(path: str, status: os.stat_result, real: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SourceUnavailable(f"{path}: credentials must be in a regular file")
    if status.st_uid not in _owners():
        raise SourceUnavailable(f"{path}: belongs to user id {status.st_uid}; give it to root or the agent")
    mode = stat.S_IMODE(status.st_mode)
    if open_to_others(real, mode):
        raise SourceUnavailable(f"{path}: mode {mode:04o} lets others at the password; chmod 0600")


def _owners() -> set[int]:
    """Users whose file is believed: root, who runs this, and for root the agent's own."""
    owners = {0, os.geteuid()}
    if os.geteuid() == 0:
        with contextlib.suppress(KeyError):
            owners.add(pwd.getpwnam(AGENT_USER).pw_uid)
    return owners


def _parse(path: str, data: bytes) -> Credentials:
    if len(data) > MAX_FILE_BYTES:
        raise SourceUnavailable(f"{path}: more than {MAX_FILE_BYTES} bytes; {_REMEDY}")
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise SourceUnavailable(f"{path}: not UTF-8; {_REMEDY}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, colon, value = line.partition(":")
        key = key.strip()
        if not colon or key not in ("username", "password") or key in found:
            raise SourceUnavailable(f"{path}:{number}: not one of the two lines; {_REMEDY}")
        found[key] = _unquoted(value.strip())
    for key in ("username", "password"):
        if not found.get(key):
            raise SourceUnavailable(f"{path}: no {key}; {_REMEDY}")
    return Credentials(found["username"], found["password"])


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
