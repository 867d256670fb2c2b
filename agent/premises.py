"""What a daemon needs for itself alone: its folders, their locks, its sockets. Taken before anything is
started.

Whatever is missing or taken is one clear line, and everything taken so far is given back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from agent.errors import DaemonError
from agent.listening import ADMIN_SOCKET, bind_tcp, bind_unix
from agent.node_profile import Mode, NodeProfile

LOCK_NAME = "daemon.lock"
_FOLDER_MODE = 0o750


@dataclass(frozen=True, slots=True)
class Folders:
    """Where a daemon keeps its state (holds, journal), its operator socket and the engines' logs."""

    state_dir: Path
    run_dir: Path
    log_dir: Path


@dataclass(slots=True)
class Premises:
    """Folders that are locked and sockets that listen; a context manager that gives all of it back."""

    folders: Folders
    api: socket.socket
    admin: socket.socket
    agent_checks: dict[str, socket.socket]
    _owned: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Premises:
        """The premises themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the sockets, remove the operator socket, release the locks."""
        self._owned.close()


def take_premises(folders: Folders, profile: NodeProfile) -> Premises:
    """Make and lock the folders, and listen on every port of the profile. Raises DaemonError."""
    with contextlib.ExitStack() as owned:
        _make_folder(folders.state_dir, "--state-dir")
        _make_folder(folders.run_dir, "--run-dir")
        _make_folder(folders.log_dir, "--log-dir")
        for folder in dict.fromkeys((folders.state_dir.resolve(), folders.run_dir.resolve())):
            owned.callback(os.close, _lock(folder))
        api = owned.enter_context(bind_tcp(profile.api.host, profile.api.port, "api.port"))
        checks = {
            name: owned.enter_context(
                bind_tcp(profile.api.host, part.agent_check_port, f"{key}.{name}.agent_check_port")
            )
            for key, parts in (("engines", profile.engines), ("pairs", profile.pairs))
            for name, part in parts.items()
            if part.agent_check_port is not None and profile.mode is not Mode.OBSERVE
        }
        path = folders.run_dir / ADMIN_SOCKET
        admin = owned.enter_context(bind_unix(path))
        owned.callback(path.unlink, missing_ok=True)
        return Premises(folders, api, admin, checks, owned.pop_all())


def _make_folder(folder: Path, option: str) -> None:
    """Make a folder and prove that files can be written in it."""
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as cause:
        why = cause.strerror or cause
        raise DaemonError(
            f"{folder}: cannot be written: {why}; let the agent write there, or name another with {option}"
        ) from cause


def _lock(folder: Path) -> int:
    """Lock a folder for this process; the descriptor that holds the lock. The kernel frees it at any end."""
    path = folder / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as cause:
        raise DaemonError(f"{path}: cannot be opened: {cause.strerror or cause}") from cause
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise DaemonError(f"{folder}: another nodegate daemon (pid {holder}) uses this folder") from cause
    except OSError as cause:
        os.close(descriptor)
        raise DaemonError(f"{path}: cannot be locked: {cause.strerror or cause}") from cause
    # For people, and the lock holds without it: a full disk must not keep the agent from starting.
    with contextlib.suppress(OSError):
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor
