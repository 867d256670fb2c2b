"""Files that are read again and again are kept open: one pread(2) a reading instead of open, read and close.

kernfs (sysfs) makes a value anew at each read from offset 0, and answers ENODEV on a descriptor whose
attribute is gone (fs/kernfs/file.c). A descriptor does not notice that its *path* now means another file: an
interface that was renamed, a file that was replaced. So the folder of each kept file is looked at (one stat
for all its files) and a folder that is another one, or whose entries have changed, loses its descriptors.
https://docs.kernel.org/filesystems/sysfs.html
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

#: A folder that was looked at this short a time ago is taken as unchanged: what a pass reads of it is read
#: within this time, and no reader can be more current than the file it has just read.
FOLDER_TRUST_S = 0.005
#: Kernels before 6.13 stamp changes by the tick: a folder that has just changed may change again unseen.
SETTLED_S = 0.02
#: A sysfs attribute is at most one page; a file that is longer is not kept.
LONGEST_B = 4096
MOST_KEPT = 4096
#: Share of the process's descriptors that kept files may take; the rest belongs to sockets and pipes.
_SHARE = 0.5
#: Paths remembered as read once; when there are more, they are forgotten and counted anew.
_MOST_SEEN = 16384


def room_for_descriptors() -> int:
    """How many files may be kept open under this process's limit."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_KEPT if soft == resource.RLIM_INFINITY else min(MOST_KEPT, int(soft * _SHARE))


class _Folder:
    """A folder as it was when its files were opened."""

    __slots__ = ("looked_s", "mark", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.mark = self._look()
        self.looked_s = time.monotonic()

    def look(self) -> bool:
        """Whether the path still leads to this folder, with the entries that it had. Raises OSError."""
        now_s = time.monotonic()
        if self._look() != self.mark:
            return False
        self.looked_s = now_s
        return True

    @property
    def settled(self) -> bool:
        """Whether its last change is so old that the next one will show."""
        return abs(time.time() - self.mark[2] / 1e9) > SETTLED_S

    def _look(self) -> tuple[int, int, int]:
        found = os.stat(self.path)  # noqa: PTH116 (a fraction of the cost of Path.stat)
        return found.st_dev, found.st_ino, found.st_mtime_ns


class _File:
    """An open file; closed when the last thread that reads it lets go, so never under a reader."""

    __slots__ = ("fd", "folder")

    def __init__(self, path: Path, folder: _Folder) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.folder = folder

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class KeptFiles:
    """Open files by path; safe to use from many threads, and no thread waits for another one's read."""

    def __init__(self, root: Path, most: int | None = None) -> None:
        """Keep up to `most` files under `root` open; unset = what the process's limit leaves room for."""
        self._root = root
        self._most = room_for_descriptors() if most is None else most
        self._files: dict[str, _File] = {}
        self._folders: dict[str, _Folder] = {}
        self._seen: set[str] = set()

    def __len__(self) -> int:
        return len(self._files)

    def read(self, path: str) -> bytes | None:
        """The file's bytes as they are now; None when it is not kept (any more): read it the long way."""
        file = self._files.get(path)
        if file is None:
            return None
        folder = file.folder
        try:
            if time.monotonic() - folder.looked_s < FOLDER_TRUST_S or folder.look():
                data = os.pread(file.fd, LONGEST_B + 1, 0)
                if len(data) <= LONGEST_B:
                    return data
            else:
                self._forget_folder(folder)
        # Gone or unreadable: reading it the long way says which, or finds what is there now.
        except OSError:
            self._folders.pop(path.rpartition("/")[0], None)
        self._files.pop(path, None)
        return None

    def offer(self, path: str, length_b: int) -> None:
        """Say that `path` has just been read the long way; from its second time on it is kept open."""
        if length_b > LONGEST_B or len(self._files) >= self._most:
            return
        if path not in self._seen:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen.add(path)
            return
        name = path.rpartition("/")[0]
        try:
            folder = self._folders.get(name)
            # Looked at before the file is opened: a change in between shows as one, and costs a reading.
            if folder is None or not folder.look():
                folder = self._folders[name] = _Folder(str(self._root / name))
            if folder.settled:
                self._files[path] = _File(self._root / path, folder)
        # It was readable a moment ago and is not now: the next reading says so.
        except OSError:
            self._folders.pop(name, None)

    def close(self) -> None:
        """Let go of all files."""
        self._files.clear()
        self._folders.clear()

    def _forget_folder(self, folder: _Folder) -> None:
        for name, known in list(self._folders.items()):
            if known is folder:
                self._folders.pop(name, None)
        for path, file in list(self._files.items()):
            if file.folder is folder:
                self._files.pop(path, None)
