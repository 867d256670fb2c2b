"""Load a node profile from its layers: base <- platform <- presets of its engines <- overlays <- file.

Maps merge, lists and scalars replace, `null` takes back what lower layers set: the schema's default counts.
Every error is one line with the file and line where the value was written, in whichever layer that is.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import Any

from agent.errors import ConfigError
from agent.launch.preset import chosen_presets
from agent.node_profile import NodeProfile
from agent.profile_faults import slot_key_faults
from agent.profile_limits import limits_faults
from agent.profile_rules import cross_problems, notes
from agent.profile_schema import validate_tree
from agent.profile_tree import Mark, Node, Scalar, Table, find, from_plain, mark_of, merge, path_of, without
from agent.profile_tree import Path as TreePath
from agent.profile_yaml import clean, read_layer, shown_path

LAYER_FOLDER = Path(__file__).parent / "profiles"
BASE = "base"
#: Reads one layer file, with the name it is told by.
ReadLayer = Callable[[Path, str], Table]


@dataclass(frozen=True)
class LoadedProfile:
    """A whole, consistent profile; `hash` is the SHA-256 of its canonical JSON, `layers` lowest first."""

    profile: NodeProfile
    hash: str
    layers: tuple[str, ...]
    files: tuple[Path, ...]
    #: The merged layers with the place of every key, for whoever explains where a number comes from.
    tree: Table | None = field(default=None, compare=False, repr=False)

    def where(self, key: str) -> str | None:
        """`file:line` of a key (`gpus.power_limit_w`); None where no layer has it and the default counts."""
        path = path_of(self.tree, key) if self.tree is not None else None
        return None if self.tree is None or path is None else mark_of(self.tree, path).where


@dataclass(frozen=True)
class Examined:
    """What examining a profile gave: the profile, its merged tree and notes, or all of its faults."""

    loaded: LoadedProfile | None
    tree: Table | None
    faults: tuple[ConfigError, ...]
    notes: tuple[str, ...] = ()


def load_profile(path: Path, *, overlays: Sequence[Path] = (), read: ReadLayer = read_layer) -> LoadedProfile:
    """Load a profile over base, platform and site overlays. Raises ConfigError for the first fault.

    Who loads many profiles of one site gives a `read` that remembers the layers that they share.
    """
    examined = examine(path, overlays=overlays, read=read)
    if examined.loaded is None:
        raise first_fault(examined.faults, f"`nodegate profile validate {shown_path(path)}` lists them")
    return examined.loaded


def profile_from_dict(data: Mapping[str, Any]) -> LoadedProfile:
    """The profile that a program describes, over the same layers. Raises ConfigError for the first fault."""
    top = from_plain(data, Mark("(profile given by the program)", 0, 0, "program"))
    assert isinstance(top, Table)
    examined = _examine_layers([top], files=[])
    if examined.loaded is None:
        raise first_fault(examined.faults, "all: " + " | ".join(str(fault) for fault in examined.faults))
    return examined.loaded


def examine(path: Path, *, overlays: Sequence[Path] = (), read: ReadLayer = read_layer) -> Examined:
    """Like load_profile, but gives all faults (in order of layer and line) instead of raising the first."""
    files = [*overlays, path]
    tables, faults = [], []
    for file in files:
        try:
            tables.append(read(file, shown_path(file)))
        except ConfigError as fault:
            faults.append(fault)
    return Examined(None, None, tuple(faults)) if faults else _examine_layers(tables, files=files)


def first_fault(faults: Sequence[ConfigError], where_all: str) -> ConfigError:
    """The first of several faults, saying how many more there are."""
    first, more = faults[0], len(faults) - 1
    if not more:
        return first
    remedy = "; ".join(
        filter(None, (first.remedy, f"and {more} more fault{'s' if more > 1 else ''}: {where_all}"))
    )
    return ConfigError(first.problem, where=first.where, remedy=remedy)


def platforms() -> list[str]:
    """The platform layers that there are."""
    return sorted(file.stem for file in LAYER_FOLDER.glob("*.yaml") if file.stem != BASE)


def profile_hash(profile: NodeProfile) -> str:
    """SHA-256 (hex) of the canonical JSON of the whole profile, defaults included."""
    data = json.dumps(profile.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(data.encode("ascii")).hexdigest()


@cache
def _shipped(name: str) -> Table:
    """A layer that comes with the package; it does not change while the program runs."""
    return read_layer(LAYER_FOLDER / f"{name}.yaml", name)


def _examine_layers(tops: Sequence[Table], *, files: Sequence[Path]) -> Examined:
    """Merge base, platform and the given layers (lowest first) and find every fault."""
    base = _shipped(BASE)
    chosen = next((t.entries["platform"] for t in (*reversed(tops), base) if "platform" in t.entries), None)
    unknown = _platform_fault(chosen)
    platform = (
        "generic-8gpu" if unknown or not isinstance(chosen, Scalar) or not chosen.value else chosen.text
    )
    below = _shipped(platform)
    chosen_by = chosen_presets(reduce(merge, [base, below, *tops]))
    presets = chosen_by.layers
    tree = reduce(merge, [base, below, *presets, *tops])
    profile, faults = _type(tree)
    for engine, fault in chosen_by.faults.items():  # what the preset would have given is not missed
        faults = [fault, *(other for other in faults if not other.problem.startswith(f"engines.{engine}."))]
    if unknown:  # which platform was meant is not known, so only what does not depend on it is told
        mine = {top.mark.file for top in tops}
        faults = [unknown, *(fault for fault in faults if str(fault.where).rpartition(":")[0] in mine)]
    if faults or profile is None:
        # A person's own files first.
        order = [layer.mark.file for layer in (*tops, *presets, base, below)]
        return Examined(None, tree, tuple(sorted(faults, key=lambda fault: _position(fault, order))))
    names = (BASE, platform, *dict.fromkeys(one.name for one in chosen_by.presets))
    names = (*names, *(top.mark.layer for top in tops))
    shipped = (LAYER_FOLDER / f"{BASE}.yaml", LAYER_FOLDER / f"{platform}.yaml")
    paths = (*shipped, *dict.fromkeys(one.file for one in chosen_by.presets), *files)
    loaded = LoadedProfile(profile, profile_hash(profile), names, paths, tree)
    return Examined(loaded, tree, (), tuple(notes(profile)))


def _platform_fault(node: Node | None) -> ConfigError | None:
    """A platform that has no layer; other kinds of value are left to the schema."""
    known = platforms()
    if not isinstance(node, Scalar) or node.value is None or node.text in known:
        return None
    near = difflib.get_close_matches(node.text, known, 1, 0.5)
    there_are = f"platforms: {', '.join(known)}"
    return ConfigError(
        f"platform: there is no platform `{clean(node.text)}`",
        where=node.mark.where,
        remedy=f"did you mean {near[0]}? {there_are}" if near else there_are,
    )


def _type(tree: Table) -> tuple[NodeProfile | None, list[ConfigError]]:
    """Type the merged tree and find every fault: schema, slot keys, limits, contradictions."""
    limit_faults, as_text = limits_faults(tree)
    typed = validate_tree(NodeProfile, tree, as_text=as_text)
    faults = [*typed.faults, *slot_key_faults(tree, typed.paths), *limit_faults]
    pruned, bad = tree, set(typed.paths)
    while typed.model is None and not any(len(path) < 2 for path in typed.missing):
        # What is wrong by itself goes, so that contradictions between the rest are found in the same run.
        smaller: Node = pruned
        for path in typed.paths:
            smaller = without(smaller, path[:-1] if path in typed.missing else path)
        assert isinstance(smaller, Table)
        if smaller == pruned:
            return None, faults
        pruned = smaller
        typed = validate_tree(NodeProfile, pruned, as_text=as_text)
        bad |= set(typed.paths)
    if not isinstance(typed.model, NodeProfile):
        return None, faults
    faults += _contradictions(typed.model, tree, bad)
    return (None if faults else typed.model), faults


def _contradictions(profile: NodeProfile, tree: Table, bad: set[TreePath]) -> list[ConfigError]:
    """Contradictions with both places; those with a value that is at fault, even in part, are left out."""
    faults = []
    for problem in cross_problems(profile):
        paths = [problem.path, *([problem.other] if problem.other else [])]
        if any(path[: len(wrong)] == wrong[: len(path)] for path in paths for wrong in bad):
            continue
        text = f"{'.'.join(problem.path)}: {problem.text}"
        if problem.other and find(tree, problem.other) is not None:
            text += f" ({mark_of(tree, problem.other).where})"
        faults.append(ConfigError(text, where=mark_of(tree, problem.path).where, remedy=problem.remedy))
    return faults


def _position(fault: ConfigError, files: Sequence[str]) -> tuple[int, int]:
    """Layer and line of a fault, for sorting."""
    file, _, line = (fault.where or "").rpartition(":")
    if line.isdecimal() and file in files:
        return files.index(file), int(line)
    return len(files), 0
