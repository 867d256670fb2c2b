"""Live parts of a replayed node: a host and a tree that are partly this machine's (`live` in node.yaml)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.errors import DeviceAbsent, SourceError
from agent.sources import Tree
from agent.sources.fs import SysTree, is_plain_path, parse_integer
from agent.sources.host import LiveHost
from agent.sources.host_reading import ClockSync, DiskSpace, Host, MountAnswer, Reach, UnitState
from agent.sources.node_model import Live


def live_tree(captured: Tree, live: Live) -> Tree:
    """The captured tree, or one that is partly real."""
    return MixedTree(captured, live.tree) if live.tree else captured


def live_host(captured: Host, live: Live) -> Host:
    """The captured host, or one that is partly real."""
    return MixedHost(captured, LiveHost(), live.host) if live.host else captured


class MixedHost:
    """A host of which the named parts are this machine's."""

    def __init__(self, captured: Host, real: Host, parts: Sequence[str]) -> None:
        """`parts` as in node.yaml."""
        self._units = real if "units" in parts else captured
        self._disks = real if "disks" in parts else captured
        self._mounts = real if "mounts" in parts else captured
        self._clock = real if "clock" in parts else captured
        self._reach = real if "reach" in parts else captured

    def unit(self, name: str) -> UnitState:
        """State of a systemd unit."""
        return self._units.unit(name)

    def disk(self, path: str) -> DiskSpace:
        """Room on a file system."""
        return self._disks.disk(path)

    def mount(self, path: str, marker: str | None = None) -> MountAnswer:
        """Whether a mounted file system answers."""
        return self._mounts.mount(path, marker)

    def clock_sync(self) -> ClockSync:
        """Whether the clock is synchronised."""
        return self._clock.clock_sync()

    def reach(self, host: str, port: int) -> Reach:
        """Whether a port answers."""
        return self._reach.reach(host, port)


class _Branch:
    """A prefix of paths and the real folder or file that it is; nothing is kept open, files get replaced."""

    def __init__(self, prefix: str, target: str) -> None:
        place = Path(target)
        self.prefix = prefix
        self._name = place.name
        self.tree = SysTree(place.parent, most_kept=0)

    def below(self, path: str) -> str | None:
        """What is asked of the real tree, None for a path elsewhere."""
        inside = path == self.prefix or path.startswith(f"{self.prefix}/")
        return f"{self._name}{path[len(self.prefix) :]}" if inside else None


class MixedTree:
    """A tree of which the named prefixes are real; the longest that fits counts."""

    def __init__(self, captured: Tree, prefixes: dict[str, str]) -> None:
        """`prefixes` as in node.yaml."""
        self._captured = captured
        branches = [_Branch(prefix, target) for prefix, target in prefixes.items()]
        self._branches = sorted(branches, key=lambda branch: -len(branch.prefix))

    def text(self, path: str) -> str:
        """Text of a file."""
        tree, at = self._find(path)
        try:
            return tree.text(at)
        except SourceError as cause:
            raise _named(cause, at, path) from cause

    def data(self, path: str) -> bytes:
        """Bytes of a file."""
        tree, at = self._find(path)
        try:
            return tree.data(at)
        except SourceError as cause:
            raise _named(cause, at, path) from cause

    def integer(self, path: str) -> int:
        """Number in a file."""
        return parse_integer(self.text(path), path)

    def names(self, path: str) -> list[str]:
        """Names in a folder; where a real part lies in it, that too."""
        tree, at = self._find(path)
        grafted = {
            branch.prefix[len(path) + 1 :].partition("/")[0]
            for branch in self._branches
            if branch.prefix.startswith(f"{path}/") and self.exists(branch.prefix)
        }
        try:
            found = set(tree.names(at))
        except DeviceAbsent as cause:
            if not grafted:
                raise _named(cause, at, path) from cause
            found = set()
        except SourceError as cause:
            raise _named(cause, at, path) from cause
        return sorted(found | grafted)

    def exists(self, path: str) -> bool:
        """Whether a path is there."""
        tree, at = self._find(path)
        within = any(branch.prefix.startswith(f"{path}/") for branch in self._branches)
        return within or tree.exists(at)

    def link_target(self, path: str) -> str:
        """Target of a link, as it is written."""
        tree, at = self._find(path)
        try:
            return tree.link_target(at)
        except SourceError as cause:
            raise _named(cause, at, path) from cause

    def _find(self, path: str) -> tuple[Tree, str]:
        """The tree that a path is in, and the path there."""
        if not is_plain_path(path):
            raise DeviceAbsent(f"{path!r} cannot be a path under the root")
        for branch in self._branches:
            at = branch.below(path)
            if at is not None:
                return branch.tree, at
        return self._captured, path


def _named(cause: SourceError, at: str, path: str) -> SourceError:
    """The same error under the path that was asked for."""
    text = str(cause)
    return cause if at == path else type(cause)(text.replace(f"/{at}", f"/{path}", 1))
