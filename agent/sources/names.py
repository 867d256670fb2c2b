"""Host names to addresses, without the event loop's own pool of threads.

A name server that is silent holds a thread for as long as the system's resolver is patient. The pool has few,
and starting and adopting engines needs them; so each name has one thread of its own, and whoever asks for the
name while it is out waits for the same answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable

Found = tuple[str, ...]


def _resolve(host: str) -> Found:
    """All addresses of a name, in the system's order. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


class Names:
    """Looks names up for one event loop."""

    def __init__(self, resolve: Callable[[str], Found] = _resolve) -> None:
        """Nothing is asked yet; `resolve` may block."""
        self._resolve = resolve
        self._asked: dict[str, asyncio.Future[Found]] = {}

    async def of(self, host: str) -> Found:
        """The addresses; of an address itself. Raises OSError; waits without end."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pending = self._asked.get(host) or self._ask(host)
            # Whoever gives up takes the answer from nobody else.
            return await asyncio.shield(pending)
        return (host,)

    def _ask(self, host: str) -> asyncio.Future[Found]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Found] = loop.create_future()
        self._asked[host] = answer

        def deliver(found: Found, error: OSError | None) -> None:
            self._asked.pop(host, None)
            if answer.done():
                return
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)
                answer.exception()  # nobody may wait for it any more: that is no news

        def work() -> None:
            found: Found = ()
            error: OSError | None = None
            try:
                found = self._resolve(host)
                error = None if found else OSError("its name has no address")
            except OSError as cause:
                error = cause
            except UnicodeError:  # a label that is no name; the profile's own rule has let it through
                error = OSError("it is no host name")
            # RuntimeError: the loop has been closed meanwhile, nobody waits for the name any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(deliver, found, error)

        threading.Thread(target=work, name="nodegate-name", daemon=True).start()
        return answer
