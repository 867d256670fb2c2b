"""Make the agent the parent of its engines' orphans (PR_SET_CHILD_SUBREAPER, prctl(2))."""

from __future__ import annotations

import ctypes
import logging
import os

logger = logging.getLogger("nodegate.launch")

_PR_SET_CHILD_SUBREAPER = 36


def become_reaper() -> None:
    """Orphans below this process come to it instead of to init.

    Without it they are still found and killed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        logger.warning("cannot become the reaper of orphans: %s", os.strerror(ctypes.get_errno()))


def reap(pid: int) -> None:
    """Collect one ended child; nothing happens when it is not ours or has not ended."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # it has another parent, or was collected already
        return
