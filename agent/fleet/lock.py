"""One run at a time on an inventory: a lock on its folder, gone with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.errors import ConfigError


def site_of(source: Path) -> Path:
    """The folder of an inventory that is named by its folder or by a file in it."""
    return source if source.is_dir() else source.parent


@contextlib.contextmanager
def locked(inventories: Sequence[Path]) -> Iterator[None]:
    """Hold the inventories for this run. ConfigError when another run holds one of them."""
    with contextlib.ExitStack() as held:
        # In one order, so that two runs with the same inventories cannot each hold what the other needs.
        for site in sorted({site_of(source).resolve() for source in inventories}):
            held.enter_context(_held(site))
        yield


@contextlib.contextmanager
def _held(site: Path) -> Iterator[None]:
    descriptor = os.open(site, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "another fleet run on this inventory is going on",
                where=str(site),
                remedy="wait for its end, or stop it with Ctrl-C",
            ) from None
        except OSError as cause:
            raise ConfigError(
                f"cannot be locked: {cause.strerror}",
                where=str(site),
                remedy="keep inventories on a file system that has locks",
            ) from cause
        yield
    finally:
        os.close(descriptor)
