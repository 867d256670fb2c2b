"""What lies around the engines: units of systemd and their journal, the engines' output, the profile."""

from __future__ import annotations

import errno
import os
import platform
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from agent import __version__
from agent.bundle.parts import MIB, Case, NotHere, Piece, as_json
from agent.bundle.read_node import command_pieces
from agent.bundle.secret_search import LONGEST_SECRET_BYTES
from agent.errors import SourceUnavailable
from agent.profile_render import render

_UNITS = ("nodegate.service", "nodegate-enforce.service")
_BESIDE = ("nvidia-fabricmanager.service", "nvidia-persistenced.service")
_PATTERN = "nodegate-engine@*.service"
_LINES = "--lines=20000"
#: What the name of the older part of an engine's output ends in (agent/launch/engine_log.py).
_OLDER = ".1"


def read_units(case: Case) -> Iterator[Piece]:
    """State of nodegate's units and their journal."""
    if case.node_dir is not None:
        raise NotHere("systemd is not asked of a captured node")
    of_units = [f"--unit={unit}" for unit in (*_UNITS, *_BESIDE, _PATTERN)]
    yield from command_pieces(
        case,
        {
            "units/status.txt": [
                "systemctl", "status", "--no-pager", "--full", "--all", "--lines=50",
                *_UNITS, *_BESIDE, _PATTERN,
            ],
            "units/journal.log": [
                "journalctl", "--no-pager", "--output=short-iso-precise", f"--since=@{case.since_wall_s:.0f}",
                _LINES, *of_units,
            ],
        },
        prompts=True,
    )  # fmt: skip


def read_engine_logs(case: Case) -> Iterator[Piece]:
    """The end of each engine's output, the older part after the newer one."""
    if case.log_dir is None or not case.log_dir.is_dir():
        raise NotHere(f"no engine has written output{f' in {case.log_dir}' if case.log_dir else ''}")
    logs = sorted(path for path in case.log_dir.iterdir() if path.name.startswith("engine-"))
    if not logs:
        raise NotHere(f"no engine has written output in {case.log_dir}")
    share = max(MIB // 16, case.most_bytes // len(logs))
    problems = []
    for path in logs:
        parted = path.name.endswith(_OLDER) or path.with_name(f"{path.name}{_OLDER}") in logs
        try:
            data, whole = tail(path, share + LONGEST_SECRET_BYTES)
        except OSError as cause:
            problems.append(f"{path}: {cause.strerror or cause}")
            continue
        note, margin_bytes = ("", 0) if whole else ("cut: its newest lines", LONGEST_SECRET_BYTES)
        name = f"engine-logs/{path.name}"
        # The older part begins and ends in the middle of a line, and the newer one goes on with that line:
        # half a secret would not be found.
        if path.name.endswith(_OLDER):
            data = data.rpartition(b"\n")[0] + b"\n"
        if parted and whole:
            data = data.partition(b"\n")[2]
        yield Piece(name, data, note, log=True, prompts=True, margin_bytes=margin_bytes, cut=parted)
    if problems:
        raise SourceUnavailable("; ".join(problems))


def tail(path: Path, most_bytes: int) -> tuple[bytes, bool]:
    """The last whole lines of a file, and whether they are all: a line cut in two may hold half a secret.

    Raises OSError, also for what is no regular file: engines may write in the folder, and root reads it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        file.seek(max(0, status.st_size - most_bytes))
        data = file.read(most_bytes)
    return (data, True) if status.st_size <= most_bytes else (data.partition(b"\n")[2], False)


def read_profile(case: Case) -> Iterator[Piece]:
    """The profile as it counts, and what ran here."""
    facts = {
        "nodegate": __version__,
        "python": sys.version.split()[0],
        "kernel": platform.release(),
        "machine": platform.machine(),
        "boot_id": case.sources.clock.boot_id(),
    }
    yield Piece("versions.json", as_json(facts))
    if case.loaded is None:
        raise SourceUnavailable(case.profile_problem)
    yield Piece("profile.yaml", render(case.loaded).encode())
