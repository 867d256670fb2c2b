"""The files of the repository, as git knows them, for the contract tests."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked() -> tuple[Path, ...]:
    """Every tracked file that is there, as absolute paths."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def tracked_with(suffixes: tuple[str, ...], under: str = "") -> list[Path]:
    """Tracked files of some suffixes below a folder."""
    base = ROOT / under
    return [path for path in tracked() if path.suffix in suffixes and path.is_relative_to(base)]


def short(path: Path) -> str:
    """The path as people write it."""
    return str(path.relative_to(ROOT))
