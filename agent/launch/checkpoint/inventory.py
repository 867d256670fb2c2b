"""A checkpoint's folder as it is on disk, against its own index: files, tensors, what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from agent.errors import SourceUnavailable
from agent.launch.checkpoint.fault import COPY_AGAIN, CheckpointFault, printable, unreadable
from agent.launch.checkpoint.headers import Shard, read_shard
from agent.launch.checkpoint.model_config import ModelConfig, read_config, read_object
from agent.sources.launch_reading import Problem, Severity

INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
MAX_INDEX_BYTES = 256 << 20
#: More of a kind than this are counted, not listed.
MOST_LISTED = 3
T = TypeVar("T")
_NUMBERED = re.compile(r"-(\d{5,6})-of-(\d{5,6})\.safetensors$")


@dataclass(frozen=True, slots=True)
class Index:
    """model.safetensors.index.json; without one there is a single file."""

    weight_map: Mapping[str, str]
    total_bytes: int | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names, sorted."""
        return tuple(sorted(set(self.weight_map.values())))


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is on disk. `absent` are files of the index that are not there."""

    folder: Path
    shards: Mapping[str, Shard]
    index: Index | None = None
    absent: tuple[str, ...] = ()
    config: ModelConfig | None = None
    faults: tuple[Problem, ...] = field(default=())
    #: Files that are there and could not be read as what they must be.
    broken: tuple[str, ...] = ()

    @property
    def file_bytes(self) -> int:
        """Sum of the files that are here."""
        return sum(shard.file_bytes for shard in self.shards.values())

    @property
    def tensor_bytes(self) -> int:
        """Sum of the tensors that are here."""
        return sum(shard.tensor_bytes for shard in self.shards.values())

    @property
    def count(self) -> int:
        """Files that the checkpoint consists of, here or not."""
        return len(self.shards) + len(self.absent) + len(self.broken)


def read_inventory(folder: Path) -> Inventory:
    """Look at a folder. SourceUnavailable when it cannot be looked at; what is wrong is in `faults`."""
    try:
        # A link to nothing (a download that was broken off) is a file that is missing.
        here = {entry.name for entry in folder.iterdir() if entry.exists()}
    except OSError as cause:
        raise unreadable(folder, cause) from cause
    faults: list[Problem] = []
    config = _or_fault(faults, lambda: read_config(folder))
    index = _or_fault(faults, lambda: read_index(folder)) if INDEX in here else None
    names = list(index.files) if index else _without_index(here)
    if not names and not faults:
        raise SourceUnavailable(f"{folder} holds no {SUFFIX} file: only such checkpoints are reckoned")
    shards: dict[str, Shard] = {}
    broken: list[str] = []
    for name in names:
        if name in here:
            shard = _or_fault(faults, partial(read_shard, folder / name))
            if shard is None:
                broken.append(name)
            else:
                shards[name] = shard
    absent = tuple(name for name in names if name not in here)
    faults += _duplicates(folder, shards)
    faults += _against_index(folder, index, shards) if index else _numbering(folder, names)
    return Inventory(folder, shards, index, absent, config, tuple(faults), tuple(broken))


def _without_index(here: set[str]) -> list[str]:
    """The files that an engine loads by itself: not the same weights again in another layout."""
    names = sorted(name for name in here if name.endswith(SUFFIX))
    return [name for name in names if not name.startswith("consolidated")] or names


def read_index(folder: Path, name: str = INDEX) -> Index:
    """Read the index. CheckpointFault when it is wrong."""
    path = folder / name
    found = read_object(path, MAX_INDEX_BYTES)
    weights = found.get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise CheckpointFault(path, "has no weight_map")
    for file in set(map(str, weights.values())):
        if not file.endswith(SUFFIX) or "/" in file or file.startswith("."):
            raise CheckpointFault(path, f"names {file[:100]!r}, which is no {SUFFIX} file of this folder")
    metadata = found.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    whole = isinstance(total, int | float) and not isinstance(total, bool) and 0 < total < 1 << 60
    return Index({str(k): str(v) for k, v in weights.items()}, int(total) if whole and total else None)


def listed(names: list[str] | tuple[str, ...]) -> str:
    """`a, b and 3 more`."""
    shown = printable(", ".join(name[:200] for name in names[:MOST_LISTED]))
    return f"{shown} and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else shown


def _or_fault(faults: list[Problem], read: Callable[[], T]) -> T | None:
    """What was read; a fault is noted and nothing returned."""
    try:
        return read()
    except CheckpointFault as fault:
        faults.append(fault.problem())
        return None


def _duplicates(folder: Path, shards: Mapping[str, Shard]) -> list[Problem]:
    """No tensor may be in two files: which of them is loaded would be chance."""
    holder: dict[str, str] = {}
    twice: list[str] = []
    for name, shard in shards.items():
        for tensor in shard.tensors:
            first = holder.setdefault(tensor.name, name)
            if first != name:
                twice.append(f"{tensor.name} (in {first} and {name})")
    if not twice:
        return []
    text = f"tensors are in two files: {listed(twice)}"
    return [Problem(Severity.ERROR, str(folder), text, "remove the file that does not belong there")]


def _against_index(folder: Path, index: Index, shards: Mapping[str, Shard]) -> list[Problem]:
    """Each file must hold the tensors that the index says, and no others."""
    path = str(folder / INDEX)
    wanted: dict[str, set[str]] = {}
    for tensor, file in index.weight_map.items():
        wanted.setdefault(file, set()).add(tensor)
    faults: list[Problem] = []
    for name, shard in shards.items():
        has = {tensor.name for tensor in shard.tensors}
        if lacking := sorted(wanted[name] - has):
            text = f"lacks tensors that the index has there: {listed(lacking)}"
            faults.append(Problem(Severity.ERROR, str(shard.path), text, COPY_AGAIN))
        elif unnamed := sorted(has - wanted[name]):
            text = f"does not name tensors that {name} holds: {listed(unnamed)}"
            faults.append(Problem(Severity.WARNING, path, text, "copy index and files from the same release"))
    return faults


def _numbering(folder: Path, names: list[str]) -> list[Problem]:
    """Without an index the files' own numbers say how many there must be."""
    found = [match for name in names if (match := _NUMBERED.search(name))]
    if not found:
        return []
    totals = {int(match[2]) for match in found}
    if len(totals) == 1 and {int(match[1]) for match in found} == set(range(1, max(totals) + 1)):
        text, severity = "is missing although the weights are in several files", Severity.WARNING
    else:
        text, severity = (
            f"is missing, and the {len(found)} numbered files are not a whole set",
            Severity.ERROR,
        )
    return [Problem(severity, str(folder / INDEX), text, "copy it from where the checkpoint comes from")]
