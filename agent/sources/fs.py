"""SysTree: sysfs, procfs and /etc under one root (Documentation/ABI/stable/sysfs-*, proc(5)).

https://www.kernel.org/doc/html/latest/admin-guide/sysfs-rules.html
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from agent.errors import DeviceAbsent, ParseError, SourceError, SourceUnavailable
from agent.sources.fs_kept import KeptFiles

#: A device that is pulled while its attribute is read answers ENODEV or ENXIO rather than ENOENT.
#: A process or thread that ends between open and read of its file answers ESRCH.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ENAMETOOLONG, errno.ESRCH})
_LIMIT_B = 1 << 20
#: Longer by nature: a stanza for each package of the system.
_LONGER_B = {"var/lib/dpkg/status": 16 << 20}
#: Only here does one read from offset 0 give the value of now, and is a lost device an error of the read.
_KEPT_UNDER = "sys/"
_CHUNK_B = 1 << 16
_NO_PARTS = frozenset({"", ".", ".."})
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")


def parse_integer(text: str, path: str) -> int:
    """A decimal or 0x number as sysfs writes it. Raises ParseError naming the path."""
    if len(text) <= 20 and text.isascii() and text.isdigit():
        return int(text)
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    raise ParseError(f"/{path} holds {text[:40]!r}, not a whole number")


def is_plain_path(path: str) -> bool:
    """Whether a path stays under the root: relative, without empty, `.` or `..` parts or NUL."""
    return "\0" not in path and _NO_PARTS.isdisjoint(path.split("/"))


class SysTree:
    """Files under one root. Every call reads, no value is cached; files of sysfs read often stay open.

    Paths are plain strings and calls those of `os`: a pathlib object costs more than the system call.
    """

    def __init__(self, root: Path = Path("/"), *, most_kept: int | None = None) -> None:
        """Take every path as relative to `root`; keep at most `most_kept` files open (unset: see fs_kept)."""
        self._root = f"{root}".rstrip("/")
        self._kept = KeptFiles(root, most_kept)

    def text(self, path: str) -> str:
        """The file's text, stripped. Raises DeviceAbsent, SourceUnavailable, ParseError."""
        data = self._kept.read(path)
        if data is None:
            data = self.data(path)
            if path.startswith(_KEPT_UNDER):
                self._kept.offer(path, len(data))
        try:
            return data.decode().strip()
        except UnicodeDecodeError as cause:
            raise ParseError(f"/{path} is not text") from cause

    def data(self, path: str) -> bytes:
        """The file's bytes, 1 MiB at most. Raises DeviceAbsent, SourceUnavailable, ParseError."""
        limit_b = _LONGER_B.get(path, _LIMIT_B)
        try:
            data = _read_up_to(self._full(path), limit_b + 1)
        except OSError as cause:
            raise _source_error(path, cause) from cause
        if len(data) > limit_b:
            raise ParseError(f"/{path} is longer than {limit_b} bytes")
        return data

    def close(self) -> None:
        """Let go of the files that are kept open; reading goes on to work."""
        self._kept.close()

    def integer(self, path: str) -> int:
        """The file's text as a decimal or 0x number. Raises ParseError besides."""
        data = self._kept.read(path)
        if data is not None:
            digits = data.strip()
            if len(digits) <= 20 and digits.isdigit():  # counters, hundreds a pass: bytes are ASCII here
                return int(digits)
        return parse_integer(self.text(path), path)

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted. Raises DeviceAbsent, SourceUnavailable."""
        try:
            return sorted(os.listdir(self._full(path)))  # noqa: PTH208 (see the class)
        except OSError as cause:
            raise _source_error(path, cause) from cause

    def exists(self, path: str) -> bool:
        """Whether the path exists. Raises SourceUnavailable when that cannot be told."""
        try:
            os.stat(self._full(path))  # noqa: PTH116
        except OSError as cause:
            error = _source_error(path, cause)
            if isinstance(error, DeviceAbsent):
                return False
            raise error from cause
        except DeviceAbsent:
            return False
        return True

    def link_target(self, path: str) -> str:
        """What a symbolic link points to, as it is written. Raises DeviceAbsent, SourceUnavailable."""
        try:
            return os.readlink(self._full(path))  # noqa: PTH115
        except OSError as cause:
            if cause.errno == errno.EINVAL:
                raise DeviceAbsent(f"/{path} is not a symbolic link") from cause
            raise _source_error(path, cause) from cause

    def _full(self, path: str) -> str:
        if not is_plain_path(path):
            raise DeviceAbsent(f"{path!r} cannot be a path under the root")
        return f"{self._root}/{path}"


def _read_up_to(path: str, most_b: int) -> bytes:
    """The file's first `most_b` bytes. Raises OSError."""
    # Without O_NONBLOCK a FIFO in a file's place would hold its reader for ever; to a file it makes no odds.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        parts: list[bytes] = []
        # One of sysfs comes whole, one of procfs may come in parts: only an empty read is the end.
        while most_b > 0 and (part := os.read(descriptor, min(most_b, _CHUNK_B))):
            parts.append(part)
            most_b -= len(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def _source_error(path: str, cause: OSError) -> SourceError:
    """Absent or unreadable."""
    if cause.errno in _ABSENT:
        return DeviceAbsent(f"/{path} is not there")
    return SourceUnavailable(f"cannot read /{path}: {cause.strerror or cause}")
