"""Writes a file whole or not at all: readers see the old one or the new one, never half."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from agent.errors import ConfigError

#: Engines run as other users than whoever writes it.
MODE = 0o644


def write_whole(file: Path, text: str) -> None:
    """Replace a file; of a link, the file that it leads to. Raises ConfigError where that is not possible."""
    if file.is_dir():
        raise ConfigError("is a folder", where=str(file), remedy="name the file in it")
    file = Path(os.path.realpath(file))
    if os.path.lexists(file) and not file.is_file():  # /dev/stdout, say: root would replace the device
        raise ConfigError("is no plain file", where=str(file), remedy="name a file")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as cause:
        raise _refused(file, cause) from cause
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            os.fchmod(stream.fileno(), MODE)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(file)
    except OSError as cause:
        fresh.unlink(missing_ok=True)
        raise _refused(file, cause) from cause


def _refused(file: Path, cause: OSError) -> ConfigError:
    remedy = "check the folder, its permissions and its free space"
    return ConfigError(f"cannot be written: {cause.strerror or cause}", where=str(file), remedy=remedy)
