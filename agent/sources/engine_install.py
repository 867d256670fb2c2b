"""Versions of an installed engine and its NCCL, and what identifies a checkpoint: read from files alone.

A Python program's script names its interpreter in its first line, and the packages beside that one carry
their version in the name of a folder. Nothing is imported or started.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from agent import __version__
from agent.errors import SourceUnavailable

_FIRST_LINE_BYTES = 4096
_SITES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages")
_VERSION = re.compile(r"-([^-]+)\.dist-info$")
_EMBEDDED = "agent.launch.embedded_engine"
#: A checkpoint's index is a few MB; what is larger is none.
_MOST_BYTES = 256 * 1024 * 1024


def versions(command: list[str], package: str, path: str | None) -> tuple[str, str]:
    """Version of the engine's package and of NCCL's; empty for what is not installed as a package."""
    if _EMBEDDED in command:
        return f"{__version__} SIMULATED", "none SIMULATED"
    interpreter = _interpreter(command[0], path)
    if interpreter is None:
        return "", ""
    sites = [site for place in _SITES for site in sorted(interpreter.parent.parent.glob(place))]
    names = [entry.name for site in sites for entry in _entries(site)]
    engine = _version(names, rf"{package}(?:_cpu)?")
    return engine, _version(names, r"nvidia_nccl_cu\d+")


def _interpreter(program: str, path: str | None) -> Path | None:
    """The Python that runs a program: itself, or the one in its first line."""
    found = shutil.which(program, path=path)
    if found is None:
        return None
    # Not resolved: a virtual environment's interpreter is a link out of it.
    if re.fullmatch(r"python[\d.]*", Path(found).name):
        return Path(found)
    try:
        with Path(found).open("rb") as script:
            first = script.readline(_FIRST_LINE_BYTES).decode(errors="replace").strip()
    except OSError as cause:
        raise SourceUnavailable(f"{found}: cannot be read: {cause.strerror}") from cause
    words = first.removeprefix("#!").split()
    return Path(words[0]) if first.startswith("#!") and words and "python" in words[0] else None


def _entries(site: Path) -> list[Path]:
    try:
        return list(site.iterdir())
    except OSError:  # as good as not installed: the version is then not known, and that is told
        return []


def _version(names: list[str], package: str) -> str:
    """The version of a package in site-packages; the longest, for a shim may stand beside it."""
    pattern = re.compile(rf"{package}-[^-]+\.dist-info", re.IGNORECASE)
    found = [match[1] for name in names if pattern.fullmatch(name) and (match := _VERSION.search(name))]
    return max(found, key=len, default="")


def checkpoint_identity(folder: Path, *, with_index: bool) -> str:
    """A hash of the model's configuration and, with the whole index, of that too; empty: no folder.

    A node that holds only its pipeline stage has an index of its own, which is left out.
    """
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    names = ["config.json", *(["model.safetensors.index.json"] if with_index else [])]
    found = False
    for name in names:
        path = folder / name
        try:
            if not path.is_file() or path.stat().st_size > _MOST_BYTES:
                continue
            digest.update(name.encode() + b"\0" + path.read_bytes())
        except OSError as cause:
            raise SourceUnavailable(f"{path}: cannot be read: {cause.strerror}") from cause
        found = True
    return digest.hexdigest()[:16] if found else ""
