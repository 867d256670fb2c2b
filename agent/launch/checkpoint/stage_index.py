"""The index of one pipeline stage: which tensors this node loads, from which files; read-only.

A node of a model that spans several needs only its own stage's files. An engine that is given the whole index
would look for the others; this one, laid in its place (a read-only mount), names just what is here.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from agent.errors import LaunchError
from agent.launch.checkpoint.fault import CheckpointFault, unreadable
from agent.launch.checkpoint.inventory import INDEX, MAX_INDEX_BYTES, Inventory, listed
from agent.launch.checkpoint.model_config import read_object
from agent.launch.checkpoint.spread import Spread
from agent.launch.checkpoint.stages import Stages
from agent.launch.checkpoint.tensor_rules import traits
from agent.sources.launch_reading import Problem

MODE = 0o444
_MAKE = "make it anew: nodegate launch plan ENGINE --write-stage-index"


def stage_index_of(inventory: Inventory, spread: Spread) -> dict[str, Any]:
    """What the file must hold. LaunchError when there is nothing to make it from."""
    if inventory.index is None:
        raise LaunchError(f"{inventory.folder / INDEX}: a stage index is made from it; copy it there")
    where = Stages(spread, inventory.config.layers if inventory.config else None)
    here = set(spread.stages_here)
    names = {
        tensor: file
        for tensor, file in sorted(inventory.index.weight_map.items())
        if where.of(traits(tensor)) in here
    }
    if not spread.ranks or not names:
        raise LaunchError(f"{inventory.folder / INDEX}: no tensor of it belongs to a stage of this node")
    sizes = {
        tensor.name: tensor.size_bytes for shard in inventory.shards.values() for tensor in shard.tensors
    }
    gone = sorted({file for file in names.values() if file not in inventory.shards})
    if gone:
        raise LaunchError(
            f"{inventory.folder}: files of this node's stage are missing or broken: {listed(gone)}; "
            "copy them first"
        )
    return {"metadata": {"total_size": sum(sizes.get(name, 0) for name in names)}, "weight_map": names}


def write_stage_index(path: Path, inventory: Inventory, spread: Spread) -> int:
    """Write it, whole or not at all; the number of files that it names. LaunchError when it cannot be."""
    content = stage_index_of(inventory, spread)
    if path.resolve() == (inventory.folder / INDEX).resolve():
        raise LaunchError(f"{path}: is the whole checkpoint's own index; name another file as stage_index")
    if os.path.lexists(path) and not path.is_file():
        raise LaunchError(f"{path}: is no plain file; name another file as stage_index")
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), MODE)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as cause:
        raise LaunchError(
            f"{path}: cannot be written ({cause.strerror or cause}); check folder and owner"
        ) from cause
    return len(set(content["weight_map"].values()))


def stage_index_problems(path: Path, inventory: Inventory, spread: Spread) -> list[Problem]:
    """What is wrong with the file that is there."""
    try:
        mode = path.stat().st_mode
        found = read_object(path, MAX_INDEX_BYTES)
        wanted = stage_index_of(inventory, spread)
    except FileNotFoundError:
        return [CheckpointFault(path, "the stage index is missing", _MAKE).problem()]
    except OSError as cause:
        raise unreadable(path, cause) from cause
    except CheckpointFault as fault:
        return [CheckpointFault(path, fault.text, _MAKE).problem()]
    except LaunchError as cause:
        return [
            CheckpointFault(path, f"cannot be compared: {cause}", "see the other problems first").problem()
        ]
    if stat.S_IMODE(mode) & 0o222:
        return [CheckpointFault(path, f"is writable (mode {stat.S_IMODE(mode):o})", _MAKE).problem()]
    if found.get("weight_map") != wanted["weight_map"]:
        return [
            CheckpointFault(path, "does not name just the tensors of this node's stages", _MAKE).problem()
        ]
    return []
