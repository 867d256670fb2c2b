"""The generation that this node's rank belongs to, kept on disk for a restarted agent."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

log = logging.getLogger("nodegate.group")


class GenerationFile:
    """One small JSON file, replaced atomically; it counts only on the boot that it was written on."""

    def __init__(self, path: Path, boot_id: str) -> None:
        """Name the file; nothing is read yet."""
        self._path = path
        self._boot_id = boot_id

    def load(self) -> str:
        """The generation, empty when none is known: a rank that then runs is ended, never trusted."""
        try:
            kept = json.loads(self._path.read_text())
            generation = kept["generation"] if kept["boot_id"] == self._boot_id else ""
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return ""
        return generation if isinstance(generation, str) else ""

    def save(self, generation: str) -> str:
        """Keep it before its rank starts; what went wrong in words, empty if nothing did."""
        temporary = self._path.with_name(self._path.name + ".new")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump({"boot_id": self._boot_id, "generation": generation}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as cause:
            why = f"{self._path}: cannot be written: {cause.strerror}; a restarted agent would end the rank"
            log.warning("%s", why)
            return why
        return ""
