"""nft(8), which loads and shows nftables rules; it is given its rules on stdin."""

from __future__ import annotations

import subprocess

from agent.errors import SourceTimeout, SourceUnavailable
from agent.sources.command import ENVIRONMENT

DEADLINE_S = 5.0
_MOST_WORDS = 300


def load_rules(text: str) -> None:
    """Load rules as one transaction: all of them or none. Raises SourceTimeout, SourceUnavailable."""
    _nft(["-f", "-"], text)


def show_table(table: str) -> str | None:
    """A table (`inet NAME`) as nft writes it, None if it is not there. Raises SourceError."""
    there = _nft(["list", "tables"], "").splitlines()
    return _nft(["list", "table", *table.split()], "") if f"table {table}" in there else None


def _nft(words: list[str], text: str) -> str:
    try:
        done = subprocess.run(
            ["nft", *words],  # noqa: S607 (found by the PATH of ENVIRONMENT, which has system folders alone)
            input=text.encode(),
            capture_output=True,
            env=dict(ENVIRONMENT),
            cwd="/",
            timeout=DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as cause:
        raise SourceTimeout(f"nft: no answer within {DEADLINE_S:g} s") from cause
    except OSError as cause:
        raise SourceUnavailable(
            f"nft cannot be started: {cause.strerror}; install the package nftables"
        ) from cause
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[:_MOST_WORDS]
        raise SourceUnavailable(f"nft: {said or f'exit status {done.returncode}'}")
    return done.stdout.decode(errors="replace")
