"""SHA-256 sums of the files, in the background: one file after another, at the lowest priority, resumable.

What a file's sum was is kept by path, size and time of change, in memory and in one small file of the state
directory: an unchanged file is never read again, and an agent that is restarted goes on with the next file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.errors import LaunchError, SourceUnavailable
from agent.launch.checkpoint.fault import CheckpointFault, unreadable
from agent.launch.checkpoint.regular import open_regular

log = logging.getLogger("nodegate.launch")
CHUNK_BYTES = 8 << 20
MAX_SUMS_BYTES = 16 << 20
STORE_NAME = "checksums.json"
_LINE = re.compile(r"^\\?([0-9A-Fa-f]{64}) [ *](.+)$")
_IDLE_NICE = 19


@dataclass(frozen=True, slots=True)
class SumsState:
    """How far it is: bytes of all files and of those done, and the sums by name."""

    total_bytes: int
    done_bytes: int
    sums: Mapping[str, str]
    error: str = ""

    @property
    def percent(self) -> float:
        """Bytes done in percent, rounded down: 100 only when all is done."""
        return 100.0 if self.done_bytes >= self.total_bytes else 100 * self.done_bytes // self.total_bytes


def read_sums(path: Path) -> dict[str, str]:
    """A file in sha256sum's format: sums by name. CheckpointFault with the line that is wrong."""
    try:
        with open_regular(path, "give sha256sum's output") as file:
            raw = file.read(MAX_SUMS_BYTES + 1)
    except FileNotFoundError as cause:
        raise CheckpointFault(path, "is missing", "correct launch.checkpoint.checksums") from cause
    except OSError as cause:
        raise unreadable(path, cause) from cause
    if len(raw) > MAX_SUMS_BYTES:
        raise CheckpointFault(path, f"is larger than {MAX_SUMS_BYTES >> 20} MiB", "give sha256sum's output")
    found: dict[str, str] = {}
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        match = _LINE.match(line)
        if match is None:
            raise CheckpointFault(
                path, f"line {number} is not `SUM  NAME`", "write it with sha256sum *.safetensors"
            )
        name = match[2].removeprefix("./")
        if found.setdefault(name, match[1].lower()) != match[1].lower():
            raise CheckpointFault(
                path, f"line {number} names {name[:200]} again with another sum", "keep one line"
            )
    return found


class Checksums:
    """Sums of files, worked out by one thread. Without `store` they are kept in memory only."""

    def __init__(self, store: Path | None, *, work: bool = True) -> None:
        """Take up what was known; with `work` False nothing is read, and only what is known is told."""
        self._store = store
        self._work = work
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._known: dict[str, str] = _load(store) if store is not None else {}
        self._part_bytes = 0
        self._error = ""

    def look(self, folder: Path, names: Mapping[str, int]) -> SumsState:
        """How far the sums of these files are; starts or goes on with what is missing."""
        keys = {name: _key(folder / name) for name in sorted(names)}
        with self._lock:
            sums = {name: self._known[key] for name, key in keys.items() if key in self._known}
            left = [folder / name for name in keys if name not in sums]
            running = self._thread is not None and self._thread.is_alive()
            error = "" if running else self._error
            if left and self._work and not running and not self._stop.is_set():
                self._error = ""
                self._thread = threading.Thread(target=self._run, args=(left,), name="checksums", daemon=True)
                self._thread.start()
            part = self._part_bytes if left else 0
        done = sum(size for name, size in names.items() if name in sums)
        total = sum(names.values())
        if not left and done < total:
            total = done
        return SumsState(total, min(done + part, max(total - 1, 0)) if left else done, sums, error)

    def close(self) -> None:
        """Stop reading; the file that is being read is begun anew next time."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout=2)

    def _run(self, paths: list[Path]) -> None:
        """Work through the files."""
        with contextlib.suppress(OSError):  # a priority that cannot be lowered only makes it less polite
            # On Linux this is the thread's own; I/O priority follows it.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _IDLE_NICE)
        for path in paths:
            try:
                found = self._sum(path)
            except (OSError, LaunchError, SourceUnavailable) as cause:
                reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
                with self._lock:
                    self._error = f"{path} cannot be read: {reason}"
                return
            if self._stop.is_set():
                return
            if found is not None:
                self._keep(*found)

    def _sum(self, path: Path) -> tuple[str, str] | None:
        """Key and sum of one file; None when it was stopped or the file changed meanwhile."""
        key, digest = _key(path), hashlib.sha256()
        try:
            with open_regular(path) as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
                    self._part_bytes += len(chunk)
                    if self._stop.is_set():
                        return None
        finally:
            self._part_bytes = 0
        return (key, digest.hexdigest()) if _key(path) == key else None

    def _keep(self, key: str, found: str) -> None:
        """Remember a sum, on disk too; the file's older sums go."""
        path = key.partition("\0")[2]
        with self._lock:
            self._known = {k: v for k, v in self._known.items() if k.partition("\0")[2] != path} | {
                key: found
            }
            known = dict(self._known)
        if self._store is not None:
            try:
                _save(self._store, known)
            except OSError as cause:
                log.warning(
                    "%s cannot be written (%s): sums are worked out again after a restart", self._store, cause
                )


def _key(path: Path) -> str:
    """What a sum belongs to."""
    try:
        seen = path.stat()
    except OSError as cause:
        raise unreadable(path, cause) from cause
    return f"{seen.st_size}:{seen.st_mtime_ns}:{seen.st_ino}\0{path}"


def _load(store: Path) -> dict[str, str]:
    """What was known; a file that is not there or not readable only means to begin anew."""
    try:
        with store.open("rb") as file:
            found = json.loads(file.read(MAX_SUMS_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    known = found.get("sums") if isinstance(found, dict) else None
    if not isinstance(known, dict):
        return {}
    return {k: v for k, v in known.items() if isinstance(v, str) and re.fullmatch("[0-9a-f]{64}", v)}


def _save(store: Path, known: Mapping[str, str]) -> None:
    """Replace the store as a whole."""
    descriptor, name = tempfile.mkstemp(dir=store.parent, prefix=f".{store.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"schema": 1, "sums": dict(sorted(known.items()))}, file, indent=1)
        Path(name).replace(store)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
