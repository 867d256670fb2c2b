"""What is known of the other members of a model that spans several nodes; the group's driver fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent.errors import SourceUnavailable

if TYPE_CHECKING:  # who only asks engines does not load the rules of groups
    from agent.group.state import GroupRecord, Mine, Peer, Rules
    from agent.group.status import MemberStatus


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """One engine's group as this member sees it at `mono_s`; `serving`: its gate is open."""

    mono_s: float
    rules: Rules
    record: GroupRecord
    mine: Mine
    status: MemberStatus
    peers: tuple[Peer, ...]
    serving: bool = False


class NotInGroup(SourceUnavailable):
    """Nobody follows the group here: a replayed node, or a single pass of the checks."""


class Groups(Protocol):
    """The groups of this node's engines."""

    def observe(self, engine: str) -> GroupObservation:
        """The newest observation. Raises SourceUnavailable."""


class NoGroups:
    """Nobody follows any group."""

    def observe(self, engine: str) -> GroupObservation:
        """Raise NotInGroup."""
        raise NotInGroup(f"only a running agent follows the group of {engine}; see nodegate status")


class GroupBoard:
    """The newest observation of each engine's group; published by the main loop, read by checks."""

    def __init__(self) -> None:
        """Nothing has been observed."""
        self._seen: dict[str, GroupObservation] = {}

    def publish(self, engine: str, observation: GroupObservation) -> None:
        """Replace one."""
        self._seen[engine] = observation

    def observe(self, engine: str) -> GroupObservation:
        """The newest observation. Raises SourceUnavailable before the first."""
        seen = self._seen.get(engine)
        if seen is None:
            raise SourceUnavailable(f"the group of {engine} has not been looked at yet")
        return seen
