"""Presets: shipped launches as data, which profiles are based on.

A preset `NAME.yaml` has `title`, `sources` (where each number comes from), `notes`, `engine` (a part of an
engine of a profile) and `variants`: NAME/VARIANT is the preset with `engine` of that variant over its own.
Its engine is a layer of the profile between the platform and the site's files: whatever those set wins, and
`null` in them takes back what the preset sets.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agent.errors import ConfigError
from agent.profile_tree import Items, Node, Scalar, Table, find, merge
from agent.profile_yaml import clean, read_layer

FOLDER = Path(__file__).parent / "presets"
_KEYS = frozenset({"title", "sources", "notes", "engine", "variants"})


@dataclass(frozen=True, slots=True)
class Preset:
    """One preset, in one of its variants."""

    name: str
    title: str
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    engine: Table
    file: Path


@dataclass(frozen=True, slots=True)
class ChosenPresets:
    """What the engines of a profile are based on: a layer each, and faults by engine."""

    layers: tuple[Table, ...] = ()
    presets: tuple[Preset, ...] = ()
    faults: Mapping[str, ConfigError] = field(default_factory=dict)


def preset_names() -> list[str]:
    """Every preset and variant, as `launch.preset` takes them."""
    return [
        name for file in sorted(FOLDER.glob("*.yaml")) for name in (file.stem, *_variants(_file(file.stem)))
    ]


@cache
def preset(name: str) -> Preset:
    """A preset by NAME or NAME/VARIANT. ConfigError when there is none, or its file is not a preset."""
    stem, _, variant = name.partition("/")
    if name not in preset_names():
        raise ConfigError(f"there is no preset `{clean(name)}`", remedy=_near(name))
    top = _file(stem)
    engine, notes = _table(top, "engine"), _texts(top, "notes")
    if variant:
        part = _table(_table(top, "variants"), variant)
        engine, notes = merge(engine, _table(part, "engine")), (*notes, *_texts(part, "notes"))
    title = top.entries["title"]
    assert isinstance(title, Scalar)
    text = f"{title.text} ({variant})" if variant else title.text
    return Preset(name, text, _texts(top, "sources"), notes, engine, FOLDER / f"{stem}.yaml")


def chosen_presets(tree: Table) -> ChosenPresets:
    """The layers that the engines of a merged profile choose by `launch.preset`."""
    layers, found, faults = [], [], {}
    for engine, node in _choices(tree):
        key = f"engines.{clean(engine)}.launch.preset"
        try:
            one = preset(node.text)
        except ConfigError as fault:
            where = fault.where or node.mark.where
            faults[engine] = ConfigError(f"{key}: {fault.problem}", where=where, remedy=fault.remedy)
            continue
        mark = one.engine.mark
        engines = Table(mark, {engine: one.engine}, {engine: mark})
        layers.append(Table(mark, {"engines": engines}, {"engines": mark}))
        found.append(one)
    return ChosenPresets(tuple(layers), tuple(found), faults)


def _choices(tree: Table) -> Iterator[tuple[str, Scalar]]:
    """Engine and the text of its preset; other kinds of value are left to the schema."""
    engines = tree.entries.get("engines")
    for engine, node in engines.entries.items() if isinstance(engines, Table) else ():
        choice = find(node, ("launch", "preset"))
        if isinstance(choice, Scalar) and choice.value is not None:
            yield engine, choice


def _near(name: str) -> str:
    """The names that were probably meant, else all presets."""
    known = preset_names()
    near = difflib.get_close_matches(name, known, 3, 0.5)
    stems = [known_name for known_name in known if "/" not in known_name]
    return f"did you mean {' or '.join(near)}?" if near else f"presets: {', '.join(stems)}"


@cache
def _file(stem: str) -> Table:
    """A preset's file, checked; it does not change while the program runs."""
    top = read_layer(FOLDER / f"{stem}.yaml", stem)
    for key in top.entries:
        if key not in _KEYS:
            raise ConfigError(f"{clean(key)}: unknown key of a preset", where=top.marks[key].where)
    if not isinstance(top.entries.get("title"), Scalar) or not _texts(top, "sources"):
        raise ConfigError("a preset needs `title` and `sources`", where=top.mark.where)
    _table(top, "engine")
    return top


def _variants(top: Table) -> list[str]:
    """NAME/VARIANT for each variant."""
    variants = top.entries.get("variants")
    names = variants.entries if isinstance(variants, Table) else ()
    return [f"{top.mark.layer}/{name}" for name in names]


def _table(top: Table, key: str) -> Table:
    """A map that must be there."""
    node: Node | None = top.entries.get(key)
    if not isinstance(node, Table):
        raise ConfigError(f"a preset needs the map `{key}`", where=top.mark.where)
    return node


def _texts(top: Table, key: str) -> tuple[str, ...]:
    """A list of texts; empty when it is not there."""
    node = top.entries.get(key)
    items = node.items if isinstance(node, Items) else ()
    return tuple(item.text for item in items if isinstance(item, Scalar))
