"""Which processes belong to one engine (pure): by session, by descent, and by having belonged before.

vLLM's processes stay in the session that the engine was started in even after the API server is killed and
they are given another parent; their environment is no help, for setproctitle overwrites it. A member that
leaves the session is still found as a child of a member, and once found it is remembered by pid and start
time.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.sources.processes import ProcessStat

Key = tuple[int, int]


class ProcessTree:
    """The processes of one engine, led by `root`.

    `root_session`: trust the session numbered like the root even when the root is gone. Right while the
    tree is watched without a gap; wrong after a gap, for the number may have become another's.
    """

    def __init__(self, root: Key, *, known: Iterable[Key] = (), root_session: bool = True) -> None:
        """Begin with the process that was started and those known from before."""
        self.root = root
        self.known: set[Key] = {root, *known}
        self.members: dict[Key, ProcessStat] = {}
        self._root_session = root_session

    def remember(self, stats: Iterable[ProcessStat]) -> None:
        """Count processes as members that were recognised by other means (their environment)."""
        self.known.update(stat.key for stat in stats)

    def update(self, table: Iterable[ProcessStat]) -> list[ProcessStat]:
        """Take a new look at all processes; the members that are not dead."""
        stats = {stat.pid: stat for stat in table}
        sessions = self._sessions(stats)
        members = {s.key: s for s in stats.values() if s.key in self.known or s.session in sessions}
        grown = True
        while grown:
            pids = {pid for pid, _ in members}
            children = {s.key: s for s in stats.values() if s.ppid in pids and s.key not in members}
            members |= children
            grown = bool(children)
        self.known |= members.keys()
        self.members = members
        return [stat for stat in members.values() if not stat.dead]

    def _sessions(self, stats: dict[int, ProcessStat]) -> set[int]:
        """Sessions that are the engine's: those that a known member is in.

        The kernel gives a session's number out again only when the session is empty, so one with a member
        still in it is the same as ever.
        """
        sessions = {stat.session for stat in stats.values() if stat.key in self.known}
        root_now = stats.get(self.root[0])
        if self._root_session and (root_now is None or root_now.key == self.root):
            sessions.add(self.root[0])
        return sessions
