"""Host: the node as roles touch it: files, commands, and where /sys is. Nothing here goes through a shell."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

#: Most of a command's output that an error line repeats.
_QUOTED = 200
#: What a killed command gets to die; one that waits for a device inside the kernel never does.
_DIE_S = 2.0


class HostError(Exception):
    """What could not be read or done: one line with what, where and what to do."""


class Output(NamedTuple):
    """What a command gave."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The telling part of what it said, on one line: errors first."""
        text = " ".join((self.err.strip() or self.out.strip()).split())
        return text[-_QUOTED:] if text else f"exit status {self.status}"


class Host:
    """This machine. `sys_root` is where sysfs is looked for: /sys, or a folder that stands in for it."""

    def __init__(self, sys_root: str = "/sys") -> None:
        """Look below `sys_root` for paths that begin with /sys/."""
        self.sys_root = sys_root.rstrip("/")

    def path(self, path: str) -> pathlib.Path:
        """Where a path really is; only /sys/... is moved."""
        if path == "/sys" or path.startswith("/sys/"):
            return pathlib.Path(self.sys_root + path[len("/sys") :])
        return pathlib.Path(path)

    def exists(self, path: str) -> bool:
        """Whether there is something at a path."""
        return self.path(path).exists()

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; none where there is no folder."""
        try:
            return sorted(entry.name for entry in self.path(folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as cause:
            raise HostError(f"{folder}: cannot be listed: {cause.strerror}") from cause

    def read(self, path: str) -> str | None:
        """The text of a file; None where there is none. Raises HostError."""
        try:
            return self.path(path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as cause:
            raise HostError(f"{path}: cannot be read: {cause.strerror}") from cause

    def poke(self, path: str, text: str) -> None:
        """Write into a file of the kernel (sysfs, procfs) as it is there. Raises HostError."""
        try:
            descriptor = os.open(self.path(path), os.O_WRONLY | os.O_TRUNC)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as cause:
            raise HostError(f"{path}: the kernel does not take {text!r}: {cause.strerror}") from cause

    def write(self, path: str, text: str, mode: int = 0o644, owner: tuple[int, int] | None = None) -> None:
        """Write a file whole or not at all, with its folders. Raises HostError."""
        target = self.path(path)
        beside = None
        try:
            _make_folders(target.parent)
            descriptor, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
                os.fchmod(descriptor, mode)
                if owner is not None:
                    os.fchown(descriptor, *owner)
            pathlib.Path(beside).replace(target)
        except OSError as cause:
            if beside is not None:
                with contextlib.suppress(FileNotFoundError):
                    pathlib.Path(beside).unlink()
            raise HostError(f"{path}: cannot be written: {cause.strerror}") from cause

    def remove(self, path: str) -> None:
        """Remove a file if it is there. Raises HostError."""
        try:
            self.path(path).unlink()
        except FileNotFoundError:
            return
        except OSError as cause:
            raise HostError(f"{path}: cannot be removed: {cause.strerror}") from cause

    def mode(self, path: str) -> int | None:
        """Permission bits of a file; None where there is none."""
        try:
            return stat.S_IMODE(self.path(path).stat().st_mode)
        except OSError:
            return None

    def has(self, program: str) -> bool:
        """Whether a program is on the PATH."""
        return shutil.which(program) is not None

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str = "") -> Output:
        """Run a command to its end. Raises HostError when it is not there or does not end in time."""
        name = argv[0]
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError as cause:
            raise HostError(f"{name}: is not installed on this node; install it and run again") from cause
        except OSError as cause:
            raise HostError(f"{name}: cannot be run: {cause.strerror}") from cause
        try:
            out, err = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired as cause:
            process.kill()
            # Not waited for without end, as subprocess.run does: a lost GPU or a dead server keeps it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DIE_S)
            for stream in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            words = " ".join(argv)
            raise HostError(
                f"{words}: gave no answer within {timeout_s:g} s; look at the kernel log"
            ) from cause
        return Output(process.returncode, out, err)

    def must(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str = "") -> str:
        """Run a command that has to succeed; its output. Raises HostError."""
        done = self.run(argv, timeout_s, stdin)
        if done.status != 0:
            raise HostError(f"{' '.join(argv)}: {done.said}")
        return done.out


def _make_folders(folder: pathlib.Path) -> None:
    """Folders that all can enter, whatever the umask of a login is."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
