"""What a bundle is made of: pieces, the sources that give them, and the case that they are about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agent.errors import SourceError
from agent.profile_loader import LoadedProfile
from agent.sources import Sources
from agent.sources.command import Output

MIB = 1024 * 1024


class NotHere(SourceError):
    """This node has no such thing, and nothing is missing for it: no BMC in the profile, no checklist run."""


class Ask(Protocol):
    """Runs a command to its end; `Commands.run` is one."""

    def __call__(self, argv: Sequence[str], *, deadline_s: float, key: str, limit_b: int = ...) -> Output:
        """Raises SourceTimeout, SourceUnavailable."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of the bundle as it was read, still with everything in it.

    `log` is text of which the newest lines are worth something alone; `prompts` may hold requests of users.
    """

    path: str
    data: bytes
    note: str = ""
    log: bool = False
    prompts: bool = False
    #: Bytes at its beginning that may be the end of a secret: read to be cut off once it is clean.
    margin_bytes: int = 0
    #: Its beginning is missing: the first lines may belong to one that is not here.
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """What the bundle is about. `since_wall_s`: how far back, seconds since the epoch."""

    sources: Sources
    ask: Ask
    loaded: LoadedProfile | None
    profile_problem: str
    #: The captured node that stands for this machine (SIMULATED), None for this machine.
    node_dir: Path | None
    node: str
    now_wall_s: float
    since_wall_s: float
    #: Folders of the daemon; None where no daemon belongs to the case.
    state_dir: Path | None
    run_dir: Path | None
    log_dir: Path | None
    #: Most bytes of one source; told before it reads.
    most_bytes: int = 64 * MIB


Read = Callable[[Case], Iterator[Piece]]


@dataclass(frozen=True, slots=True)
class Source:
    """One source: it gives pieces one by one, and what it gave before its deadline is kept.

    `share` is its part of the bundle's size. `free_text` may repeat any secret of the profile: it is left out
    while a file of secrets cannot be read, because then nobody knows what to look for.
    """

    name: str
    title: str
    share: float
    deadline_s: float
    read: Read
    free_text: bool = False


def as_json(value: Any) -> bytes:
    """A document for people and programs."""
    return (json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n").encode(errors="replace")


def as_lines(rows: Sequence[Any]) -> bytes:
    """JSON, one row a line."""
    return "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows).encode(
        errors="replace"
    )
