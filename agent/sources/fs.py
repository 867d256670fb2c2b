"""SysTree: sysfs, procfs and /etc under one root (Documentation/ABI/stable/sysfs-*, proc(5)).

https://www.kernel.org/doc/html/latest/admin-guide/sysfs-rules.html
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

from agent.errors import DeviceAbsent, ParseError, SourceError, SourceUnavailable
from agent.sources.fs_kept import KeptFiles

#: A device that is pulled while its attribute is read answers ENODEV or ENXIO rather than ENOENT.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ENAMETOOLONG})
_LIMIT_B = 1 << 20
#: Only here does one read from offset 0 give the value of now, and is a lost device an error of the read.
_KEPT_UNDER = "sys/"
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
    return bool(path) and "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


class SysTree:
    """Files under one root. Every call reads, no value is cached; files of sysfs read often stay open."""

    def __init__(self, root: Path = Path("/"), *, most_kept: int | None = None) -> None:
        """Take every path as relative to `root`; keep at most `most_kept` files open (unset: see fs_kept)."""
        self._root = root
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
        try:
            with self._full(path).open("rb") as file:
                data = file.read(_LIMIT_B + 1)
        except OSError as cause:
            raise _source_error(path, cause) from cause
        if len(data) > _LIMIT_B:
            raise ParseError(f"/{path} is longer than {_LIMIT_B} bytes")
        return data

    def close(self) -> None:
        """Let go of the files that are kept open; reading goes on to work."""
        self._kept.close()

    def integer(self, path: str) -> int:
        """The file's text as a decimal or 0x number. Raises ParseError besides."""
        return parse_integer(self.text(path), path)

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted. Raises DeviceAbsent, SourceUnavailable."""
        try:
            return sorted(child.name for child in self._full(path).iterdir())
        except OSError as cause:
            raise _source_error(path, cause) from cause

    def exists(self, path: str) -> bool:
        """Whether the path exists. Raises SourceUnavailable when that cannot be told."""
        try:
            self._full(path).stat()
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
            return str(self._full(path).readlink())
        except OSError as cause:
            if cause.errno == errno.EINVAL:
                raise DeviceAbsent(f"/{path} is not a symbolic link") from cause
            raise _source_error(path, cause) from cause

    def _full(self, path: str) -> Path:
        if not is_plain_path(path):
            raise DeviceAbsent(f"{path!r} cannot be a path under the root")
        return self._root / path


def _source_error(path: str, cause: OSError) -> SourceError:
    """Absent or unreadable."""
    if cause.errno in _ABSENT:
        return DeviceAbsent(f"/{path} is not there")
    return SourceUnavailable(f"cannot read /{path}: {cause.strerror or cause}")
