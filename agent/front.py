"""The read-only API, served before the rest of the daemon is built: a start that takes long is not silence.

Until the gates publish, /readyz answers 503 and says so; /livez counts from the first moment.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from agent.api import make_api
from agent.publisher import Publisher
from agent.server_thread import ServerThread, http_server

if TYPE_CHECKING:
    from agent.premises import Premises


#: Threads of Python take turns. A probe needs several turns (wait, receive, send), each of which waits this
#: long while a check computes; with the interpreter's own 5 ms an answer would take 15 ms at every beat.
TURN_S = 0.0005


class Front:
    """A publisher and the thread that serves what it publishes; a context manager that ends the serving."""

    def __init__(self, premises: Premises) -> None:
        """Nothing is served before it is entered."""
        self.publisher = Publisher()
        self.servers = ServerThread()
        self.servers.add_http(http_server(make_api(self.publisher)), premises.api)

    def __enter__(self) -> Front:
        """Serve."""
        sys.setswitchinterval(TURN_S)
        self.publisher.beat()
        self.servers.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Serve no more."""
        self.servers.stop()
