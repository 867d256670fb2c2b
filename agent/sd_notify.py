"""systemd's readiness protocol (sd_notify(3)): datagrams to the socket named in NOTIFY_SOCKET. Without it,
nothing.

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger("nodegate.systemd")


class Notifier:
    """Tells systemd of the daemon's state; trouble with that is logged once and never more than that."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Take the socket from the environment."""
        path = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the NUL of an abstract socket.
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._complained = False

    def ready(self, status: str) -> None:
        """Startup, or a reload, is over."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self, mono_s: float) -> None:
        """A reload begins; `mono_s` is CLOCK_MONOTONIC."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(mono_s * 1e6)}")

    def watchdog(self) -> None:
        """The main loop is alive."""
        self._send("WATCHDOG=1")

    def stopping(self, within_s: float) -> None:
        """The end begins; it may take this long, whatever the unit's own limit is."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(within_s * 1e6)}")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as messenger:
                messenger.sendto(text.encode(), self._address)
        except OSError as cause:
            if not self._complained:
                log.warning("systemd cannot be told: %s", cause)
            self._complained = True
