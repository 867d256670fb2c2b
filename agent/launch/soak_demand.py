"""A soak that somebody has asked for: the engine's next launch is loaded for at least so long, whatever the
profile says.

One small file beside what the engine's soaks are remembered in, so that a restarted agent still asks for it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from pathlib import Path

logger = logging.getLogger("nodegate.launch")
#: What is asked for where the file is there and cannot be read, in seconds.
UNREADABLE_S = 180.0
_MOST_BYTES = 64


class SoakDemand:
    """The seconds that are asked for; none without the file."""

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read yet."""
        self._path = path

    @classmethod
    def of(cls, state_dir: Path, engine: str) -> SoakDemand:
        """That of one engine."""
        return cls(state_dir / f"engine-{engine}.soak-due")

    def ask(self, seconds: float) -> None:
        """Ask for it; on the disk before this returns. Raises OSError."""
        draft = self._path.with_name(f".{self._path.name}.new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{seconds:g}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)

    def least_s(self) -> float:
        """The seconds asked for, 0 for none."""
        try:
            with self._path.open("rb") as file:
                text = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return 0.0
        except OSError as cause:
            logger.warning("%s cannot be read: %s", self._path, cause.strerror)
            return UNREADABLE_S
        with contextlib.suppress(ValueError):
            seconds = float(text)
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
        return UNREADABLE_S

    def met(self) -> None:
        """A soak of that length has passed. What cannot be removed only has the next launch soaked again."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as cause:
            logger.warning("%s cannot be removed: %s", self._path, cause.strerror)
