"""ReplayTree: the captured sysfs and procfs files, with a scenario's changes over them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from agent.errors import DeviceAbsent, ParseError, SourceUnavailable
from agent.sources.fs import is_plain_path, parse_integer
from agent.sources.node_folder import NodeFolder
from agent.sources.refusals import source_error
from agent.sources.timeline import THERE, Timeline

_LINK_HOPS = 40


class ReplayTree:
    """A captured tree; links are followed where a path was not captured as it stands."""

    def __init__(self, folder: NodeFolder, timeline: Timeline, elapsed_s: Callable[[], float]) -> None:
        """Index the folders of the capture and of what the scenario adds."""
        self._captured = folder.files is not None
        self._links = folder.links
        self._timeline = timeline
        self._elapsed_s = elapsed_s
        self._edited = frozenset(timeline.edited_files())
        self._children: dict[str, set[str]] = {"": set()}
        for path in [*(folder.files or {}), *folder.links, *self._edited]:
            while path:
                parent, _, name = path.rpartition("/")
                self._children.setdefault(parent, set()).add(name)
                path = parent

    def text(self, path: str) -> str:
        """The file's text. Raises DeviceAbsent, SourceUnavailable, ParseError."""
        try:
            return self.data(path).decode().strip()
        except UnicodeDecodeError as cause:
            raise ParseError(f"/{path} is not text") from cause

    def data(self, path: str) -> bytes:
        """The file's bytes; of a text file those of its stripped text. Raises as `text` does."""
        value = self._value(self._resolve(path))
        if value is THERE:
            raise SourceUnavailable(f"cannot read /{path}: it is a folder")
        if value is None:
            raise DeviceAbsent(f"/{path} is not there")
        if not isinstance(value, dict):
            return str(value).encode()
        if "error" in value:
            raise source_error(value["error"], f"/{path}")
        return bytes.fromhex(value["hex"])

    def integer(self, path: str) -> int:
        """The file's text as a decimal or 0x number. Raises ParseError besides."""
        return parse_integer(self.text(path), path)

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted. Raises DeviceAbsent."""
        where = self._resolve(path)
        if where not in self._children or not self._is_there(where):
            raise DeviceAbsent(f"/{path} is not there")
        return sorted(name for name in self._children[where] if self._is_there(f"{where}/{name}"))

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        return self._is_there(self._resolve(path))

    def link_target(self, path: str) -> str:
        """What a symbolic link points to, as it is written. Raises DeviceAbsent."""
        parent, _, name = path.rpartition("/")
        where = f"{self._resolve(parent)}/{name}" if parent else name
        target = self._links.get(where)
        if target is None or self._value(where) is None:
            raise DeviceAbsent(f"/{path} is not a symbolic link")
        return target

    def _is_there(self, path: str) -> bool:
        """Whether a file, link or folder is there now; what only the scenario fills needs a file in it."""
        if self._value(path) is not None:
            return True
        hidden = any(self._gone(part) for part in _self_and_parents(path))
        return not hidden and any(self._is_there(f"{path}/{name}") for name in self._children.get(path, ()))

    def _value(self, path: str) -> object:
        """Text of a file, THERE for a folder or link, None for what is not there (any more)."""
        if any(self._gone(part) for part in _self_and_parents(path)[1:]):
            return None
        value: object = self._timeline.value(("files", path), self._elapsed_s())
        return value

    def _gone(self, path: str) -> bool:
        """Whether a scenario has taken a captured path away."""
        if path not in self._edited:
            return False
        return self._timeline.value(("files", path), self._elapsed_s()) is None

    def _resolve(self, path: str) -> str:
        if not self._captured:
            raise SourceUnavailable("this capture has no files of sysfs and procfs (tree.json, root/)")
        if not is_plain_path(path):
            raise DeviceAbsent(f"{path!r} cannot be a path under the root")
        for _hop in range(_LINK_HOPS):
            if path in self._children or self._timeline.value(("files", path), 0.0) not in (None, THERE):
                return path
            followed = self._follow(path)
            if followed is None:
                return path
            path = followed
        raise DeviceAbsent(f"/{path}: too many symbolic links")

    def _follow(self, path: str) -> str | None:
        """The path with its first link replaced by what it points to; None when there is no link in it."""
        for part in reversed(_self_and_parents(path)):
            target = self._links.get(part)
            if target is None or part == path:
                continue
            base = "" if target.startswith("/") else posixpath.dirname(part)
            joined = posixpath.normpath(posixpath.join(base, target.lstrip("/"), path[len(part) + 1 :]))
            return joined if is_plain_path(joined) else None
        return None


def _self_and_parents(path: str) -> list[str]:
    """`a/b/c`, `a/b`, `a`."""
    found = []
    while path:
        found.append(path)
        path = path.rpartition("/")[0]
    return found
