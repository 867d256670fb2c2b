"""Pulling the other members' status: one loop a member and network, so that none that hangs holds up others.

The management address tells what a member is; the same question over its data address tells that the data
path works, before the engine runs as well as while it does.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from agent.errors import SourceError
from agent.group.state import Peer
from agent.group.status import MAX_BYTES, MemberStatus, WrongKey, expect, unseal
from agent.group_profile import Group, GroupMember
from agent.sources import Clock
from agent.sources.group_pull import held_back, pull_status
from agent.sources.names import Names

#: A pull ends before the next one is due.
_SHARE_OF_PERIOD = 0.8


class Puller:
    """The peers of one engine's group as they were last seen; everything on the main loop."""

    def __init__(
        self,
        engine: str,
        group: Group,
        key: bytes,
        clock: Clock,
        max_age_s: float,
        on_news: Callable[[], None],
    ) -> None:
        """Nobody has been asked yet; `max_age_s`: an older publication counts as silence."""
        self._engine, self._group, self._key = engine, group, key
        self._clock = clock
        self._max_age_s = max_age_s
        self._on_news = on_news
        self._names = Names()
        self._deadline_s = group.period_s * _SHARE_OF_PERIOD
        #: Whether ports are looked at besides: only while no rank runs, which they would disturb.
        self.probing = True
        #: Ports of other members that cannot be reached, in words, by member and port.
        self.blocked: dict[tuple[int, int], str] = {}
        self._peers: dict[int, Peer] = {
            rank: Peer(member.node, rank) for rank, member in enumerate(group.members) if rank != group.rank
        }

    @property
    def peers(self) -> tuple[Peer, ...]:
        """All other members, by rank."""
        return tuple(self._peers.values())

    def data_cut_s(self) -> Mapping[str, float]:
        """Seconds since each member last answered over the data network; -1: it never has."""
        now_s = self._clock.mono_s()
        return {
            peer.node: -1.0 if peer.data_mono_s is None else round(now_s - peer.data_mono_s, 1)
            for peer in self.peers
        }

    async def run(self) -> None:
        """Pull for ever."""
        async with asyncio.TaskGroup() as tasks:
            for rank in self._peers:
                tasks.create_task(self._each_period(self.pull, rank))
                tasks.create_task(self._each_period(self.probe, rank))

    async def _each_period(self, look: Callable[[int], Awaitable[None]], rank: int) -> None:
        while True:
            began_s, before = self._clock.mono_s(), _gist(self._peers[rank])
            await look(rank)
            if _gist(self._peers[rank]) != before:
                self._on_news()
            await asyncio.sleep(max(0.05, began_s + self._group.period_s - self._clock.mono_s()))

    async def pull(self, rank: int) -> None:
        """Ask one member over the management network."""
        member = self._group.members[rank]
        asked_s, asked_wall_s = self._clock.mono_s(), self._clock.wall_s()
        try:
            status = await self._ask(rank, member.address)
        except SourceError as cause:
            wrong = isinstance(cause, WrongKey)
            self._note(rank, error=str(cause), wrong_key=wrong)
            return
        now_s, peer = self._clock.mono_s(), self._peers[rank]
        error = self._stale(status)
        # Half of the way is the best guess of when it read its clock.
        skew_s = status.wall_s - (asked_wall_s + (now_s - asked_s) / 2)
        heard_s = asked_s - status.age_s
        self._peers[rank] = replace(
            peer,
            status=status if not error else peer.status,
            heard_mono_s=heard_s if not error else peer.heard_mono_s,
            served_mono_s=heard_s if not error and status.serves else peer.served_mono_s,
            joined=status.generation or peer.joined,
            error=error,
            wrong_key=False,
            skew_s=round(skew_s, 1),
        )
        if self._data_address(member) is None:
            self._data_answered(rank, asked_s)

    async def probe(self, rank: int) -> None:
        """Ask one member over the data network; before a start, look at the ports that ranks need too."""
        member = self._group.members[rank]
        address = self._data_address(member)
        asked_s = self._clock.mono_s()
        if address is not None:
            try:
                await self._ask(rank, address)
            except SourceError as cause:
                self._note(rank, data_error=str(cause))
                return
            self._data_answered(rank, asked_s)
        if self.probing:
            await self._look_at_ports(rank, address or member.address)
        else:
            self.blocked.clear()

    async def _ask(self, rank: int, host: str) -> MemberStatus:
        member, nonce = self._group.members[rank], secrets.token_hex(16)
        address, patience_s = (host, member.port), self._deadline_s
        data = await pull_status(address, self._engine, nonce, patience_s, MAX_BYTES, self._names)
        status = unseal(self._key, data)
        expect(status, nonce=nonce, node=member.node, engine=self._engine, rank=rank)
        return status

    def _stale(self, status: MemberStatus) -> str:
        """Why an honest answer is no fresh news."""
        if not 0 <= status.age_s <= self._max_age_s:
            return f"its agent hangs: what it publishes is {status.age_s:.0f} s old"
        return ""

    async def _look_at_ports(self, rank: int, host: str) -> None:
        ports = {*self._group.ports, *({self._group.master_port} if rank == 0 else ())}
        for port in sorted(ports):
            why = await held_back((host, port), self._deadline_s / 2, self._names)
            if why:
                node = self._group.members[rank].node
                self.blocked[rank, port] = f"port {port} of {node} at {host} cannot be reached: {why}"
            else:
                self.blocked.pop((rank, port), None)

    def _data_answered(self, rank: int, asked_s: float) -> None:
        self._peers[rank] = replace(self._peers[rank], data_mono_s=asked_s, data_error="")

    def _note(self, rank: int, **what: object) -> None:
        self._peers[rank] = replace(self._peers[rank], **what)  # type: ignore[arg-type]

    def _data_address(self, member: GroupMember) -> str | None:
        """The data address, where it is another than that of the management network."""
        return member.data_address if member.data_address not in (None, member.address) else None


#: What changes from answer to answer without being news.
_FLEETING = {"nonce", "wall_s", "age_s", "go_age_s", "data_cut_s"}


def _gist(peer: Peer) -> tuple[object, ...]:
    """What is news when it changes; that time passes is seen at the main loop's next beat."""
    said = peer.status.model_dump(exclude=_FLEETING) if peer.status is not None else None
    return said, bool(peer.error), bool(peer.data_error)


def path_problems(peers: tuple[Peer, ...]) -> tuple[str, ...]:
    """What is wrong on the way to other members, for a member that is not to start with it."""
    return tuple(
        f"no answer from {peer.who} over the data network: {peer.data_error}"
        for peer in peers
        if peer.data_error
    )
