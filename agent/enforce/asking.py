"""Asking this node's agent, over the interface that load balancers use, and nothing else."""

from __future__ import annotations

import http.client
import math
import socket
import time
from typing import Any

from agent.enforce.keeper import Word
from agent.node_profile import Api

DEADLINE_S = 1.0
#: What the agent says of an open gate; a 200 with another body is some other program's.
_OPEN = 200, b"ok\n"
#: An agent that replays a capture, or is a demonstration, says nothing of this node.
_SIMULATED = "x-nodegate-simulated"
#: Longer answers are not read to their end.
_MOST_BYTES = 1 << 20
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 (told apart, not listened on)


class _Hurried(socket.socket):
    """A socket that waits until `end_s` in all, not a while for each byte."""

    end_s = math.inf

    def recv_into(self, *args: Any) -> int:
        """Receive, as long as there is time."""
        left_s = self.end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer takes too long")
        self.settimeout(left_s)
        return super().recv_into(*args)


class Asker:
    """One connection to the agent, kept open from question to question."""

    def __init__(self, api: Api) -> None:
        """Nothing is asked yet."""
        host = _ANYWHERE.get(api.host, api.host)
        self._place = host, api.port
        self._connection = http.client.HTTPConnection(*self._place)
        self._socket: _Hurried | None = None

    def __call__(self, engine: str) -> Word:
        """The agent's word on one engine. A connection that an agent before this one has left is renewed."""
        again = self._connection.sock is not None
        word = self._ask(engine)
        return self._ask(engine) if word is Word.SILENT and again else word

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _ask(self, engine: str) -> Word:
        try:
            self._hurry()
            self._connection.request("GET", f"/readyz/{engine}")
            answer = self._connection.getresponse()
            body = answer.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return Word.SILENT
        if len(body) == _MOST_BYTES:
            self._connection.close()
        simulated = answer.getheader(_SIMULATED) is not None
        return Word.OPEN if (answer.status, body) == _OPEN and not simulated else Word.CLOSED

    def _hurry(self) -> None:
        """Connect if need be; from now on the deadline runs."""
        end_s = time.monotonic() + DEADLINE_S
        if self._connection.sock is None or self._socket is None:
            plain = socket.create_connection(self._place, DEADLINE_S)
            self._connection.sock = self._socket = _Hurried(fileno=plain.detach())
        self._socket.settimeout(DEADLINE_S)
        self._socket.end_s = end_s
