"""Wheels for hosts without the network: this project's own, and all that it needs. Made once, then kept.

Fetched by pip as it is configured on this machine, into the folder of nspawn_root.CACHE; what is in a name
(the requirements, the sources) decides when something is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from nspawn_root import CACHE, REPOSITORY

REQUIREMENTS = REPOSITORY / "requirements/base.txt"
WITHIN_S = 600
_LEFT_OUT = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "__pycache__", "tests", "docs", "bench-results"
)
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")


def wheelhouse() -> Path:
    """A folder with the wheel of every requirement, by requirements/base.txt and its hashes."""
    python = f"py{sys.version_info[0]}{sys.version_info[1]}"

    def make(folder: Path) -> None:
        words = ["download", "--require-hashes", "--only-binary", ":all:", "--no-deps"]
        _run([*_PIP, *words, "--dest", str(folder), "--requirement", str(REQUIREMENTS)])

    return _kept(f"wheels-{python}-{_hash_of([REQUIREMENTS])}", make)


def project_wheel() -> Path:
    """The wheel of this working tree."""
    parts = ("agent", "playbooks", "inventories")
    files = [file for part in parts for file in sorted((REPOSITORY / part).rglob("*"))]
    sources = [file for file in files if file.is_file() and "__pycache__" not in file.parts]

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="nodegate-wheel-") as temporary:
            copy = Path(temporary) / "nodegate"
            shutil.copytree(REPOSITORY, copy, ignore=_LEFT_OUT)
            words = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(copy)]
            _run([*_PIP, *words])

    found = list(_kept(f"own-{_hash_of([*sources, REPOSITORY / 'pyproject.toml'])}", make).glob("*.whl"))
    assert len(found) == 1, found
    return found[0]


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, filled by `make` when it is not there; older ones of its kind are removed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / name
    with (CACHE / "wheels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(folder)
            kind = name.rpartition("-")[0]
            others = sorted(CACHE.glob(f"{kind}-*"), key=lambda one: one.stat().st_mtime)
            for old in others[:-4]:  # another run may be using a recent one
                shutil.rmtree(old)
    return folder


def _hash_of(files: list[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.relative_to(REPOSITORY)}\0".encode() + file.read_bytes() + b"\0")
    return total.hexdigest()[:12]


def _run(words: list[str]) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=WITHIN_S, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
