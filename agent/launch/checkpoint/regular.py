"""Opening what must be a plain file: a FIFO or a device in its place would hang its reader, or never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from agent.launch.checkpoint.fault import COPY_AGAIN, CheckpointFault


def open_regular(path: Path, remedy: str = COPY_AGAIN) -> BinaryIO:
    """Open for reading. CheckpointFault for what is no plain file; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CheckpointFault(path, "is no plain file", remedy)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
