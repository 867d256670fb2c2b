"""Sockets that listen, bound before anything else starts, so that a port in use is one clear line."""

from __future__ import annotations

import errno
import grp
import os
import socket
from pathlib import Path

from agent.errors import DaemonError

BACKLOG = 128
GROUP = "nodegate"
ADMIN_SOCKET = "admin.sock"
#: Leaves 0660 of what the kernel gives a new socket file.
_SOCKET_UMASK = 0o117


def bind_tcp(host: str, port: int, setting: str) -> socket.socket:
    """A listening TCP socket; `setting` is the profile's name for the port. Raises DaemonError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
        # asyncio sets TCP_NODELAY only where the protocol is named; without it an answer waits for 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as cause:
        raise _cannot(setting, host, port, cause) from cause
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as cause:
        listener.close()
        raise _cannot(setting, host, port, cause) from cause
    listener.setblocking(False)
    return listener


def bind_unix(path: Path) -> socket.socket:
    """A listening Unix socket, mode 0660 from its first moment, of group `nodegate` where there is one.

    The caller holds the lock of the folder, so a file that is already there is a dead agent's. The process
    has one umask for all threads: call this before any thread starts. Raises DaemonError.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_SOCKET_UMASK)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        _give_to_group(path)
        listener.listen(BACKLOG)
    except OSError as cause:
        listener.close()
        raise DaemonError(f"{path}: cannot make the operator socket: {cause.strerror or cause}") from cause
    finally:
        os.umask(before)
    listener.setblocking(False)
    return listener


def _give_to_group(path: Path) -> None:
    """Let the group in; without the group, or the right to give files away, the owner alone stays let in."""
    try:
        os.chown(path, -1, grp.getgrnam(GROUP).gr_gid)
    except (KeyError, PermissionError):
        return


def _cannot(setting: str, host: str, port: int, cause: OSError) -> DaemonError:
    """One line with the remedy."""
    remedy = f"change {setting} in the profile"
    if cause.errno == errno.EADDRINUSE:
        remedy = f"stop what listens there, or {remedy}"
    return DaemonError(f"{setting}: cannot listen at {host} port {port}: {cause.strerror or cause}; {remedy}")
