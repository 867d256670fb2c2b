"""What is kept of a run: Ansible's output, events and summary, without secrets, for its owner alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from agent.errors import ConfigError
from agent.fleet.secret_values import Redactor
from agent.profile_yaml import shown_path

#: What of an event is kept; the arguments of a task and its environment are not.
_KEPT = ("host", "play", "role", "task", "task_action", "task_path", "start", "end", "duration")
_RESULT = (
    "msg",
    "changed",
    "failed",
    "diff",
    "drift",
    "pending",
    "reboot_required",
    "problems",
    "skip_reason",
)


class Artifacts:
    """A folder of one run: output.log, events.jsonl, summary.json; mode 0700, files 0600."""

    def __init__(self, parent: Path, name: str, redactor: Redactor) -> None:
        """Make the folder. ConfigError when it cannot be made, or is there already."""
        self.folder = parent / name
        self._redactor = redactor
        try:
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder.mkdir(mode=0o700)
            self._log = self._open("output.log")
            self._events = self._open("events.jsonl")
        except OSError as cause:
            raise ConfigError(
                f"cannot be made: {cause.strerror}",
                where=shown_path(self.folder),
                remedy="name another folder with --artifacts",
            ) from cause

    def _open(self, name: str) -> IO[str]:
        descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return os.fdopen(descriptor, "w", encoding="utf-8")

    def event(self, event: Mapping[str, Any]) -> None:
        """Keep one event."""
        if said := str(event.get("stdout") or ""):
            self._log.write(self._redactor.text(said.replace("\r\n", "\n")) + "\n")
            self._log.flush()
        data = event.get("event_data") or {}
        kept = {key: data[key] for key in _KEPT if data.get(key) is not None}
        result = data.get("res")
        if isinstance(result, Mapping) and not result.get("_ansible_no_log"):
            kept["result"] = {key: result[key] for key in _RESULT if key in result}
        line = {"event": event.get("event"), "time": event.get("created"), **self._redactor.data(kept)}
        self._events.write(json.dumps(line, default=str) + "\n")
        self._events.flush()

    def close(self, summary: Mapping[str, Any]) -> None:
        """Write the summary and end."""
        self._log.close()
        self._events.close()
        with self._open("summary.json") as file:
            json.dump(self._redactor.data(summary), file, indent=1)
            file.write("\n")
