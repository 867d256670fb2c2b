"""What an agent leaves on disk about the engine it started, so that its successor starts no second one."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import LaunchError

logger = logging.getLogger("nodegate.launch")


class RunRecord(BaseModel):
    """One launch. `pid` is None between the decision to start and the start.

    `members` are (pid, start ticks).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = 1
    engine: str
    boot_id: str
    token: str
    launch_hash: str
    started_mono_s: float
    pid: int | None = None
    start_ticks: int | None = None
    members: tuple[tuple[int, int], ...] = ()
    #: The run of its unit, under systemd.
    invocation_id: str | None = None
    #: Its end has begun: such an engine is not taken over, whatever it still answers.
    stopping: bool = False


class RunFile:
    """The record of one engine as a small JSON file, replaced atomically and synced."""

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read yet."""
        self.path = path

    def load(self) -> RunRecord | None:
        """The record; None when there is none or it is garbled, which is safe.

        Leftovers are found by mark too.
        """
        try:
            data: Any = json.loads(self.path.read_text())
            return RunRecord.model_validate(data)
        except (OSError, ValueError, RecursionError, ValidationError):
            return None

    def save(self, record: RunRecord) -> None:
        """Replace the record. LaunchError when it cannot be kept.

        An engine without a record must not be started.
        """
        temporary = self.path.with_name(self.path.name + ".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(record.model_dump_json())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as cause:
            raise LaunchError(
                f"{self.path}: cannot be written: {cause.strerror}; free space or set another --state-dir"
            ) from cause

    def mark_stopping(self, record: RunRecord | None) -> None:
        """Note that the engine is being ended. Its end must not wait for a disk that is full."""
        if record is None:
            return
        try:
            self.save(record.model_copy(update={"stopping": True}))
        except LaunchError as cause:
            logger.warning("%s", cause)

    def remove(self) -> None:
        """Forget the record. One that cannot be removed is harmless: its processes are known to be gone."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as cause:
            logger.warning("%s cannot be removed: %s", self.path, cause.strerror)
