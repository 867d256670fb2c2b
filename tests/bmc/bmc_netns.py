"""Sockets in another network namespace: a socket stays where its thread was when it was made."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_FOLDER = Path("/run/netns")


@contextmanager
def in_netns(name: str | None) -> Iterator[None]:
    """Put the calling thread into a named namespace for a while; None = stay. Needs root."""
    if name is None:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(_FOLDER / name)
        try:
            yield
        finally:
            _set(home)
    finally:
        os.close(home)


def _enter(path: Path) -> None:
    there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(there)
    finally:
        os.close(there)


def _set(descriptor: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
