"""Asking this node's agent, over the interface that load balancers use, and nothing else."""

from __future__ import annotations

import http.client

from agent.enforce.keeper import Word
from agent.node_profile import Api

DEADLINE_S = 1.0
_OPEN = 200
#: Longer answers are not read to their end: only the status counts.
_MOST_BYTES = 1 << 20
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 (told apart, not listened on)


class Asker:
    """One connection to the agent, kept open from question to question."""

    def __init__(self, api: Api) -> None:
        """Nothing is asked yet."""
        host = _ANYWHERE.get(api.host, api.host)
        self._connection = http.client.HTTPConnection(host, api.port, timeout=DEADLINE_S)

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
            self._connection.request("GET", f"/readyz/{engine}")
            answer = self._connection.getresponse()
            whole = len(answer.read(_MOST_BYTES)) < _MOST_BYTES
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return Word.SILENT
        if not whole:
            self._connection.close()
        return Word.OPEN if answer.status == _OPEN else Word.CLOSED
