"""Ports for servers that start later.

A port from `bind(0)` that is closed again is anybody's: the next test's, or the near end of some connection.
These lie below the range that the kernel takes for connections (ip_local_port_range, from 32768 on), and each
is locked for the process that asked for it, so no test beside it gets the same.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

FIRST, END = 12000, 28000
HOST = "127.0.0.1"


def free_port() -> int:
    """A port where nobody listens, and that nobody else is given while this process lives."""
    return _Ports.of(os.getpid()).take()


def free_ports(count: int) -> list[int]:
    """Some of them, all different."""
    return [free_port() for _ in range(count)]


class _Ports:
    """The ports that one process has locked: a byte of a file each, which the kernel frees when it ends."""

    def __init__(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(Path(tempfile.gettempdir()) / f"nodegate-test-ports-{os.getuid()}", flags, 0o600)
        order = list(range(FIRST, END))
        random.Random(os.urandom(8)).shuffle(order)
        self._untried = iter(order)

    @staticmethod
    @cache
    def of(pid: int) -> _Ports:
        """A forked process does not have its parent's locks."""
        return _Ports()

    def take(self) -> int:
        for port in self._untried:
            if self._lock(port) and _is_free(port):
                return port
        raise AssertionError(f"no port between {FIRST} and {END} is free")

    def _lock(self, port: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        return True


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True
