"""Which run of an engine has passed its warm-up or soak: a restarted agent neither repeats nor forgets it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

logger = logging.getLogger("nodegate.launch")
#: Longer than any key.
_MOST_BYTES = 1024


class SoakMemory:
    """One small file: the run that passed last. What cannot be read has not passed."""

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read yet."""
        self._path = path

    def passed(self, run: str) -> bool:
        """Whether this run has passed."""
        try:
            with self._path.open("rb") as file:
                return file.read(_MOST_BYTES) == run.encode()
        except OSError:
            return False

    def remember(self, run: str) -> None:
        """This run has passed. Where that cannot be kept, the next agent soaks the engine once more."""
        temporary = self._path.with_name(f"{self._path.name}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(run.encode())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as cause:
            logger.warning("%s cannot be written: %s", self._path, cause.strerror)
