"""LinkFollower: a thread on the link group of rtnetlink(7) that tells at once when an interface changes."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Callable

from agent.errors import ParseError
from agent.sources import LinkInfo
from agent.sources.net_link import RTM_DELLINK, RTM_NEWLINK, get_link_request, parse_link
from agent.sources.net_wire import NLM_F_DUMP, NLM_F_REQUEST, messages, open_socket

EVENT_LINK = "net.link"
_GROUP_LINK = 1
_RECEIVE_B = 1 << 20
_REOPEN_S = 1.0
#: Marks answers to our own dump; notifications carry 0 or what another process chose.
_DUMP_SEQUENCE = 0x6E676174


def _ready(at_most_s: float | None, *descriptors: int) -> set[int]:
    """Which can be read; by poll(2), since select(2) has no descriptors above 1023 and an agent has many."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {ready for ready, _ in poller.poll(None if at_most_s is None else at_most_s * 1000)}


class LinkFollower:
    """Calls `on_event("net.link")` when state, carrier or MTU of an interface changes, or one comes or goes.

    It only makes checks run earlier; they read the state themselves. When the socket fails it is opened anew
    and the event is sent, because a change may have been missed.
    """

    def __init__(self, on_event: Callable[[str], None]) -> None:
        """Follow nothing before start()."""
        self._on_event = on_event
        self._known: dict[int, tuple[str, str, bool, int]] = {}
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None
        self._following = threading.Event()

    def start(self) -> None:
        """Start following."""
        if self._thread is None:
            self._wake = os.pipe()
            self._thread = threading.Thread(target=self._run, name="links", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        if self._thread is None or self._wake is None:
            return
        os.write(self._wake[1], b"x")
        self._thread.join()
        for descriptor in self._wake:
            os.close(descriptor)
        self._thread = self._wake = None

    def wait_following(self, seconds: float) -> bool:
        """Wait until the socket is bound, so that no change after this call can be missed."""
        return self._following.wait(seconds)

    def _run(self) -> None:
        assert self._wake is not None
        closed = False
        again = False
        while not closed:
            try:
                with open_socket(_GROUP_LINK) as opened:
                    if again:
                        self._on_event(EVENT_LINK)
                    closed = self._follow(opened)
            except OSError:
                again = True
                self._following.clear()
                closed = bool(_ready(_REOPEN_S, self._wake[0]))

    def _follow(self, opened: socket.socket) -> bool:
        """Read messages until close() is called (True); raises OSError when the socket fails."""
        assert self._wake is not None
        self._known.clear()
        opened.send(get_link_request(_DUMP_SEQUENCE, None, NLM_F_REQUEST | NLM_F_DUMP))
        self._following.set()
        while True:
            if self._wake[0] in _ready(None, opened.fileno(), self._wake[0]):
                return True
            try:
                data = opened.recv(_RECEIVE_B)
            except OSError as cause:
                if cause.errno != errno.ENOBUFS:
                    raise
                self._on_event(EVENT_LINK)  # messages were dropped: let the checks look
                continue
            if self._changed(data):
                self._on_event(EVENT_LINK)

    def _changed(self, data: bytes) -> bool:
        """Whether a datagram tells anything new; answers to the first dump do not count as news."""
        news = False
        try:
            for kind, sequence, whole in messages(data):
                if kind in (RTM_NEWLINK, RTM_DELLINK):
                    index, info = parse_link(whole)
                    news |= self._update(kind, index, info) and sequence != _DUMP_SEQUENCE
        except ParseError:
            return True
        return news

    def _update(self, kind: int, index: int, info: LinkInfo) -> bool:
        if kind == RTM_DELLINK:
            return self._known.pop(index, None) is not None
        state = (info.name, info.operstate, info.carrier, info.mtu_bytes)
        before = self._known.get(index)
        self._known[index] = state
        return state != before
