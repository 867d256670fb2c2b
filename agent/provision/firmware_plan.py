"""What makes the BMC's firmware what the profile asks for. Pure: inventory + images -> steps.

Nothing is planned past a doubt: an unknown name, a version that cannot be compared, or a newer one that runs
is a problem in words, and with any problem there is no plan at all.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from agent.bmc_profile import FirmwareImage
from agent.checks.bmc_versions import at_least
from agent.checks.redfish_tree import said
from agent.errors import ParseError

_DEFAULT_ORDER = {"bmc": 10, "bios": 20, "hgx": 20}
_LAST = 30


class State(StrEnum):
    """What a component or a whole image needs."""

    CURRENT = "current"
    UPDATE = "update"
    PENDING = "pending activation"


class Relation(StrEnum):
    """How the version that runs stands to the wanted one."""

    SAME = "same"
    OLDER = "older"
    NEWER = "newer"
    UNLIKE = "cannot be compared"


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the BMC says: versions that run, what is written and waits, and ids that cannot be read."""

    running: Mapping[str, str]
    waiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One component of one image."""

    id: str
    field: str
    have: str
    want: str
    state: State


@dataclass(frozen=True, slots=True)
class Step:
    """One image and its components."""

    name: str
    image: FirmwareImage
    rows: tuple[Row, ...]
    force: bool = False

    @property
    def state(self) -> State:
        """What the image as a whole needs."""
        states = {row.state for row in self.rows}
        return next((s for s in (State.UPDATE, State.PENDING) if s in states), State.CURRENT)

    def drift(self) -> list[dict[str, Any]]:
        """Components whose running version is not the wanted one, as results tell them."""
        return [
            {"field": row.field, "name": row.id, "before": row.have, "after": row.want}
            for row in self.rows
            if row.state is not State.CURRENT
        ]


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order in which they are safe; with problems nothing may be done."""

    steps: tuple[Step, ...]
    problems: tuple[str, ...] = ()

    @property
    def due(self) -> tuple[Step, ...]:
        """Steps that are not done."""
        return tuple(step for step in self.steps if step.state is not State.CURRENT)


def plan(
    images: Mapping[str, FirmwareImage],
    inventory: Inventory,
    *,
    least: Mapping[str, str] | None = None,
    allow_downgrade: bool = False,
) -> Plan:
    """Compare each image with the inventory, and with `least` (bmc.firmware) what no image brings."""
    steps: list[Step] = []
    problems: list[str] = []
    for name in sorted(images, key=lambda name: (place_of(images[name]), name)):
        rows: list[Row] = []
        force = False
        for pattern, want in images[name].versions.items():
            at = f"bmc.images.{name}.versions.{pattern}"
            ids = [id_ for id_ in _ids(inventory) if fnmatchcase(id_, pattern)]
            if not ids:
                problems.append(_unknown(at, pattern, inventory))
            for id_ in ids:
                row, problem, forced = _row(images[name], inventory, at, id_, want, allow_downgrade)
                rows += [row] if row else []
                problems += [problem] if problem else []
                force |= forced
        steps.append(Step(name, images[name], tuple(rows), force))
    problems += _too_old(least or {}, inventory, {row.id for step in steps for row in step.rows})
    return Plan(tuple(steps), tuple(problems))


def _too_old(least: Mapping[str, str], inventory: Inventory, brought: set[str]) -> Iterator[str]:
    """What is older than bmc.firmware allows, and no image can help."""
    for pattern, version in least.items():
        for id_ in _ids(inventory):
            if not fnmatchcase(id_, pattern) or id_ in brought or id_ in inventory.unreadable:
                continue
            if relation(inventory.running[id_], version) is Relation.OLDER:
                yield (
                    f"bmc.firmware.{pattern}: {said(id_)} is {said(inventory.running[id_])}, older than"
                    f" {version}, and no image of bmc.images brings it; add one, or update it by hand"
                )


def relation(have: str, want: str) -> Relation:
    """How a version stands to another."""
    if have.strip() == want.strip():
        return Relation.SAME
    try:
        newer_or_same, older_or_same = at_least(have, want), at_least(want, have)
    except ParseError:
        return Relation.UNLIKE
    if newer_or_same and older_or_same:
        return Relation.SAME
    return Relation.NEWER if newer_or_same else Relation.OLDER


def place_of(image: FirmwareImage) -> int:
    """Place of an image among the others."""
    return image.order if image.order is not None else _DEFAULT_ORDER.get(image.kind, _LAST)


def _ids(inventory: Inventory) -> Iterator[str]:
    yield from sorted({*inventory.running, *inventory.unreadable})


def _unknown(at: str, pattern: str, inventory: Inventory) -> str:
    known = list(_ids(inventory))
    near = difflib.get_close_matches(pattern, known, 1, 0.5)
    hint = f" (near: {said(near[0])})" if near else ""
    return (
        f"{at}: no firmware in the BMC's inventory of {len(known)} has that name{hint};"
        " look whether the part is there, or correct the profile"
    )


def _row(
    image: FirmwareImage, inventory: Inventory, at: str, id_: str, want: str, allow_downgrade: bool
) -> tuple[Row | None, str | None, bool]:
    """The row, or why there is none, and whether the BMC must be told to go back."""
    if id_ in inventory.unreadable:
        return None, f"{at}: {said(id_)}: {inventory.unreadable[id_]}", False
    have = inventory.running[id_].strip()
    if not have:
        text = f"{at}: {said(id_)} gives no version; if it is being updated, wait for that and run again"
        return None, text, False
    how = relation(have, want)
    if how is Relation.SAME or (how is Relation.NEWER and image.match == "least"):
        return Row(id_, at, have, want, State.CURRENT), None, False
    if how is not Relation.OLDER and not allow_downgrade:
        what = "is newer than" if how is Relation.NEWER else "cannot be compared with"
        text = (
            f"{at}: {said(id_)} runs {said(have)}, which {what} {want}; nothing is downgraded unless"
            " `firmware_allow_downgrade=true` is given: correct the profile, or ask for it"
        )
        return None, text, False
    waits = any(relation(version, want) is Relation.SAME for version in inventory.waiting.get(id_, ()))
    state = State.PENDING if waits else State.UPDATE
    return Row(id_, at, have, want, state), None, how is not Relation.OLDER
