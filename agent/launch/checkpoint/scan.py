"""All that is kept of a checkpoint once its headers have been read; tensors are let go, they are many."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.errors import LaunchError
from agent.launch.checkpoint.fault import CheckpointFault, unreadable
from agent.launch.checkpoint.inventory import INDEX, Inventory, listed, read_inventory
from agent.launch.checkpoint.ledger import Weights
from agent.launch.checkpoint.model_config import NAME as CONFIG
from agent.launch.checkpoint.spread import Spread
from agent.launch.checkpoint.stage_index import stage_index_problems
from agent.launch.checkpoint.stages import Stages, StageWeights, weigh
from agent.launch.checkpoint.tensor_rules import traits
from agent.launch_parts import Checkpoint
from agent.sources.launch_reading import Problem, Severity

#: Size and time of every file: while it stays the same nothing is read again.
Fingerprint = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """One look at a folder. `unsplit` says why stages could not be told apart, empty when they could."""

    folder: Path
    weights: Weights
    problems: tuple[Problem, ...]
    #: Bytes of the files that this node needs, by name.
    sizes: Mapping[str, int]
    unsplit: str = ""


def fingerprint(folder: Path, stage_index: str | None) -> Fingerprint:
    """Size and time of the files that a scan reads. SourceUnavailable when the folder cannot be listed."""
    found: list[tuple[str, int, int]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".safetensors") or entry.name in (INDEX, CONFIG):
                    found.append(_seen(Path(entry.path), entry.name))
    except OSError as cause:
        raise unreadable(folder, cause) from cause
    if stage_index is not None:
        found.append(_seen(Path(stage_index), stage_index))
    return tuple(sorted(found))


def _seen(path: Path, name: str) -> tuple[str, int, int]:
    """Name, size and time of a file; one that is not there (a link to nothing) has none."""
    try:
        stat = path.stat()
    except OSError:
        return name, -1, 0
    return name, stat.st_size, stat.st_mtime_ns ^ stat.st_mode


def scan(folder: Path, spread: Spread, wanted: Checkpoint) -> Scan:
    """Read headers, index and config. SourceUnavailable when the folder cannot be read."""
    inventory = read_inventory(folder)
    problems = list(inventory.faults)
    unsplit, needed = "", dict[int, frozenset[str]]()
    try:
        needed = _files_by_stage(inventory, spread)
        tensors = (tensor for shard in inventory.shards.values() for tensor in shard.tensors)
        stages = tuple(weigh(tensors, spread, inventory.config))
    except LaunchError as cause:
        unsplit, stages = str(cause), ()
    here = frozenset[str]().union(*(needed.get(stage, frozenset()) for stage in spread.stages_here))
    if unsplit or not spread.ranks:
        here = frozenset({*inventory.shards, *inventory.absent, *inventory.broken})
    problems += _missing(inventory, here)
    if not unsplit and not inventory.faults:
        problems += _without_files(inventory, needed, spread)
    problems += _as_wanted(inventory, wanted)
    if wanted.stage_index is not None and not unsplit:
        problems += stage_index_problems(Path(wanted.stage_index), inventory, spread)
    sizes = {name: shard.file_bytes for name, shard in inventory.shards.items() if name in here}
    weights = _weights(inventory, stages, needed, wanted.total_bytes)
    return Scan(folder, weights, tuple(problems), sizes, unsplit)


def _files_by_stage(inventory: Inventory, spread: Spread) -> dict[int, frozenset[str]]:
    """The files that each stage loads from."""
    where = Stages(spread, inventory.config.layers if inventory.config else None)
    names = inventory.index.weight_map.items() if inventory.index else (
        (tensor.name, file) for file, shard in inventory.shards.items() for tensor in shard.tensors
    )  # fmt: skip
    found: dict[int, set[str]] = {}
    for tensor, file in names:
        stage = where.of(traits(tensor))
        if stage is not None:
            found.setdefault(stage, set()).add(file)
    if not inventory.index:  # nothing says what a broken file holds
        for files in found.values():
            files.update(inventory.broken)
    return {stage: frozenset(files) for stage, files in found.items()}


def _missing(inventory: Inventory, here: frozenset[str]) -> list[Problem]:
    """Files that this node needs and does not have."""
    gone = sorted(set(inventory.absent) & here)
    if not gone:
        return []
    text = f"{len(gone)} of {len(here)} files that this node needs are missing: {listed(gone)}"
    return [CheckpointFault(inventory.folder, text, "copy them; the index names them").problem()]


def _without_files(
    inventory: Inventory, needed: Mapping[int, frozenset[str]], spread: Spread
) -> list[Problem]:
    """Stages of this node of which nothing is here: an index of other stages, or of another model."""
    empty = [str(stage) for stage in spread.stages_here if not needed.get(stage)]
    if not empty:
        return []
    text = f"no tensor of it belongs to stage {' or '.join(empty)}, which is this node's"
    remedy = "copy index and files of this stage; the index of another node's stage does not do"
    return [CheckpointFault(inventory.folder, text, remedy).problem()]


def _as_wanted(inventory: Inventory, wanted: Checkpoint) -> list[Problem]:
    """Number and size of the files, as the profile has them or the index."""
    folder, found = inventory.folder, []
    if wanted.shards is not None and wanted.shards != inventory.count:
        text = f"the checkpoint has {inventory.count} files, launch.checkpoint.shards is {wanted.shards}"
        found.append(
            CheckpointFault(folder, text, "copy the whole release, or correct the profile").problem()
        )
    if inventory.absent or inventory.broken:
        return found  # sums of a part say nothing
    index = inventory.index.total_bytes if inventory.index else None
    if wanted.total_bytes is not None and wanted.total_bytes != inventory.file_bytes:
        text = f"has {inventory.file_bytes} bytes, launch.checkpoint.total_bytes is {wanted.total_bytes}"
        found.append(
            CheckpointFault(folder, text, "copy the whole release, or correct the profile").problem()
        )
    elif wanted.total_bytes is None and index is not None and index != inventory.tensor_bytes:
        # Only a warning: published indexes may have wrong sums, and each file was proven by its header.
        text = f"has a total_size of {index} bytes, the files' tensors have {inventory.tensor_bytes}"
        remedy = "set launch.checkpoint.total_bytes to the sum of the files if this is how it was published"
        found.append(Problem(Severity.WARNING, str(folder / INDEX), text, remedy))
    return found


def _weights(
    inventory: Inventory,
    stages: tuple[StageWeights, ...],
    needed: dict[int, frozenset[str]],
    profile_bytes: int | None,
) -> Weights:
    """Which stages are known as a whole, and the size of the checkpoint."""
    gone = {*inventory.absent, *inventory.broken}
    known = frozenset(stage for stage in range(len(stages)) if needed.get(stage) and not gone & needed[stage])
    # An index of some stages only (a stage index in the place of the whole one) does not tell the total.
    whole = not gone and len(known) == len(stages)
    total = inventory.file_bytes if whole else profile_bytes
    if total is None and gone and inventory.index:
        total = inventory.index.total_bytes
    return Weights(stages, known, total, inventory.count, inventory.config)
