"""An engine's output: one file that it writes itself, kept within a bound, and its last lines for people.

The engine gets the file's descriptor, not a pipe to the agent: it must go on when the agent is gone. So the
file is bounded by copying and truncating, which is safe because the engine appends; lines that it writes
between the two are lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent.launch.last_words import NEAR_LINES, last_words

MAX_BYTES = 32 * 1024 * 1024
TAIL_BYTES = 256 * 1024
_BLOCK_BYTES = 1024 * 1024
#: Shorter values would blot out ordinary words.
MIN_SECRET_CHARS = 4
_MASKED = re.compile("\0+")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class EngineLog:
    """The log file of one engine."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Name the file; `NAME.1` beside it is the older part."""
        self.path = path
        self.max_bytes = max_bytes
        self.secrets: tuple[str, ...] = ()
        self._begun_at: int | None = None

    def open(self) -> int:
        """A descriptor for the engine to append to; the caller closes it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.begin()
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)

    def hide(self, secrets: Iterable[str]) -> None:
        """Values that must not be shown by `tail`, besides those known: older lines hold older ones."""
        more = (secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS)
        # A secret that begins another one must not be taken out first and leave the other's end.
        self.secrets = tuple(sorted({*self.secrets, *more}, key=lambda secret: (-len(secret), secret)))

    def bound(self) -> bool:
        """Move the content to the older part when it is too long; whether it did."""
        try:
            size = self.path.stat().st_size
            if size <= self.max_bytes:
                return False
            self._keep_end(size)
        except FileNotFoundError:
            return False
        finally:
            # Even when the copy failed (disk full) the file must not grow on.
            self._truncate_if_long()
        return True

    def _keep_end(self, size: int) -> None:
        """Copy the newest `max_bytes`; never more, however fast the engine writes on meanwhile."""
        with self.path.open("rb") as source, self.path.with_name(self.path.name + ".1").open("wb") as target:
            source.seek(size - self.max_bytes)
            left = self.max_bytes
            while left > 0 and (block := source.read(min(left, _BLOCK_BYTES))):
                target.write(block)
                left -= len(block)

    def _truncate_if_long(self) -> None:
        if self.path.exists() and self.path.stat().st_size > self.max_bytes:
            os.truncate(self.path, 0)
            self._begun_at = 0  # what comes now is said by the engine that runs

    def begin(self) -> None:
        """An engine is about to start: what stands here already was said by others."""
        try:
            self._begun_at = self.path.stat().st_size
        except OSError:  # not written yet
            self._begun_at = 0

    def tail(self, lines: int) -> list[str]:
        """The last lines, control characters and secrets taken out."""
        return self._shown(0)[-lines:] if lines > 0 else []

    def own(self, lines: int) -> list[str]:
        """The same of this engine alone, where it is known when that began."""
        return self._shown(self._begun_at or 0)[-lines:] if lines > 0 else []

    def last_words(self) -> str:
        """The line that most likely says why the engine ended (last_words.py)."""
        if self._begun_at is None:  # found running: where its words begin is not known
            return last_words(self.tail(NEAR_LINES))
        return last_words(self._shown(self._begun_at))

    def _shown(self, since: int) -> list[str]:
        """The lines since that byte, as far as they are among the last TAIL_BYTES."""
        secrets = [secret.encode() for secret in self.secrets]
        # Read from further back, so that no secret is cut in two and shown by half.
        margin = max((len(secret) for secret in secrets), default=0)
        try:
            with self.path.open("rb") as file:
                size = self.path.stat().st_size
                first = max(size - TAIL_BYTES, since if since <= size else 0, 0)
                start = max(0, first - margin)
                file.seek(start)
                data = _masked(file.read(TAIL_BYTES + margin), secrets)[first - start :]
        except OSError:  # not started yet, or removed by hand: there is nothing to show
            return []
        text = _COLOUR.sub("", _MASKED.sub("***", data.decode("utf-8", "replace")))
        return [
            "".join(c if c.isprintable() or c == "\t" else " " for c in line) for line in text.splitlines()
        ]


def _masked(data: bytes, secrets: Sequence[bytes]) -> bytes:
    """NULs for each secret, also for one whose end is not written yet or whose beginning is cut off."""
    data = data.replace(b"\0", b" ")
    for secret in secrets:
        data = data.replace(secret, bytes(len(secret)))
        for known in range(len(secret) - 1, MIN_SECRET_CHARS - 1, -1):
            if data.endswith(secret[:known]):
                data = data[:-known] + bytes(known)
            if data.startswith(secret[-known:]):
                data = bytes(known) + data[known:]
    return data
