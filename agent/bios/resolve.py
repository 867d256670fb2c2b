"""From the BMC part of a profile to the attributes that this machine's BIOS must have. Pure.

Explicit attributes (`bmc.bios`) win over intents (`bmc.bios_intent`). What no map knows, what two maps tell
differently and what two intents contradict each other about is an error: nothing is then set at all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agent.bios.intent_map import IntentMap, Setting, load_maps
from agent.bios.values import Value, same
from agent.bmc_profile import Bmc
from agent.checks.redfish_tree import said
from agent.errors import ConfigError

#: A BIOS has hundreds of attributes; names near a wrong one are looked for among so many.
MOST_NAMES = 4000


@dataclass(frozen=True, slots=True)
class Machine:
    """What the service says the machine is (Systems document)."""

    manufacturer: str
    model: str
    version: str

    def __str__(self) -> str:
        return f"{said(self.manufacturer)} {said(self.model)} BIOS {said(self.version)}"


@dataclass(frozen=True, slots=True)
class Want:
    """One attribute; any of `values` is right, the first that the BIOS knows is written.

    `follows` = the BIOS sees to it by another setting and lets nobody write it: it is only compared.
    """

    name: str
    values: tuple[Value, ...]
    field: str
    follows: bool = False

    def met(self, seen: Any) -> bool:
        """Whether this value is a right one."""
        return any(same(seen, value) for value in self.values)


def asked_intents(bmc: Bmc) -> dict[str, str]:
    """The intents that the profile asks for, values as text."""
    return {key: str(value) for key, value in bmc.bios_intent.model_dump().items() if value is not None}


class IntentError(ConfigError):
    """An intent or a name that cannot be turned into attributes of this BIOS."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Every attribute that is wanted, by name, and what of the profile could not be turned into one."""

    wants: tuple[Want, ...]
    faults: tuple[IntentError, ...]


def resolve(
    bmc: Bmc, machine: Machine | None, names: Collection[str], maps: tuple[IntentMap, ...] | None = None
) -> Resolution:
    """What the BIOS of this machine must have; with a fault nothing may be set.

    `names` are the attributes that the BIOS has; `machine` is needed for intents only.
    """
    faults: list[IntentError] = []
    wants: dict[str, Want] = {}
    for asked, value in bmc.bios.items():
        try:
            want = _explicit(asked, value, names)
            wants[want.name] = _agreed(wants.get(want.name), want)
        except IntentError as cause:
            faults.append(cause)
    explicit = set(wants)
    settings: dict[str, Setting] = {}
    for intent, value in asked_intents(bmc).items():
        try:
            settings[intent] = _setting(intent, value, machine, load_maps() if maps is None else maps)
        except IntentError as cause:
            faults.append(cause)
    followed = {intent for intent, setting in settings.items() if _is_followed(setting, wants, settings)}
    for intent, setting in settings.items():
        needed = setting.set if intent in followed else {**setting.set, **setting.requires}
        for pattern, values in needed.items():
            follows = intent in followed and pattern in setting.set
            try:
                for name in _found(intent, pattern, names):
                    if name not in explicit:
                        want = Want(name, tuple(values), f"bmc.bios_intent.{intent}", follows)
                        wants[name] = _agreed(wants.get(name), want)
            except IntentError as cause:
                faults.append(cause)
    return Resolution(tuple(wants[name] for name in sorted(wants)), tuple(faults))


def _explicit(asked: str, value: Value, names: Collection[str]) -> Want:
    known = [asked] if asked in names else _variants(asked, names)
    where = f"bmc.bios.{asked}"
    if len(known) > 1:
        listed = ", ".join(said(each) for each in known[:4])
        raise IntentError(f"stands for {listed}", where=where, remedy="write the one you mean")
    if not known:
        raise no_such_name(asked, where, names)
    return Want(known[0], (value,), where)


def no_such_name(name: str, where: str, names: Collection[str]) -> IntentError:
    """The error for an attribute that the BIOS does not have, with names that are near."""
    by_letters = {each.lower(): each for each in list(names)[:MOST_NAMES]}
    near = [by_letters[each] for each in difflib.get_close_matches(name.lower(), by_letters, 3, 0.6)]
    hint = f"; near: {', '.join(said(each) for each in near)}" if near else ""
    return IntentError(
        f"the BIOS has no attribute {name}{hint}",
        where=where,
        remedy="write the name that this BIOS has: vendors change them with model and version",
    )


def _setting(intent: str, value: str, machine: Machine | None, maps: tuple[IntentMap, ...]) -> Setting:
    """What an intent means for this machine, by the maps that are about it."""
    where = f"bmc.bios_intent.{intent}"
    if machine is None:
        raise IntentError("the BMC does not say what machine and BIOS version this is", where=where)
    fitting = [each for each in maps if each.fits(machine.manufacturer, machine.model, machine.version)]
    told = [(each, each.intents[intent][value]) for each in fitting if value in each.intents.get(intent, {})]
    if not told:
        which = "no map is about" if not fitting else f"the map {fitting[0].name!r} does not know it for"
        raise IntentError(
            f"{value}: {which} {machine}",
            where=where,
            remedy=f"write this BIOS's own attribute under bmc.bios and leave {where} out",
        )
    for each, other in told[1:]:
        if other != told[0][1]:
            raise IntentError(
                f"{value}: the maps {told[0][0].name!r} and {each.name!r} differ for {machine}",
                where=where,
                remedy=f"write the attribute under bmc.bios and leave {where} out",
            )
    return told[0][1]


def _found(intent: str, pattern: str, names: Collection[str]) -> list[str]:
    """The attributes that a name of a map stands for in this BIOS. Raises IntentError if there is none."""
    for alternative in pattern.split("|"):
        known = [alternative] if alternative in names else _variants(alternative, names)
        if known:
            return known
    raise no_such_name(pattern.split("|")[0], f"bmc.bios_intent.{intent}", names)


def _variants(pattern: str, names: Collection[str]) -> list[str]:
    """Names that say the same in another way: with a number (`IOMMU#0196`, `SNC_010A`), with other signs.

    Some BMCs leave out signs or write `_` for them. A `*` of a map stands for letters and digits.
    """
    parts = [_ANYTHING if each == "*" else each if each.isalnum() else _SIGN for each in pattern]
    wanted = re.compile("".join(parts) + r"([#_][0-9A-Fa-f]{3,8})?")
    return sorted(name for name in names if wanted.fullmatch(name))


_ANYTHING = "[A-Za-z0-9]+"
_SIGN = "[^A-Za-z0-9]?"


def _agreed(known: Want | None, want: Want) -> Want:
    """Two intents about one attribute: what both accept. Raises IntentError."""
    if known is None:
        return want
    both = tuple(value for value in known.values if want.met(value))
    if not both:
        raise IntentError(
            f"needs {want.name} as {want.values[0]}, but {known.field} needs it as {known.values[0]}",
            where=want.field,
            remedy=f"leave one of the two out, or write {want.name} under bmc.bios",
        )
    return Want(want.name, both, known.field, known.follows and want.follows)


def _is_followed(setting: Setting, wants: Mapping[str, Want], settings: Mapping[str, Setting]) -> bool:
    """Whether another wanted setting makes the BIOS see to this one."""
    wanted: dict[str, list[Value]] = {name: list(want.values) for name, want in wants.items()}
    for other in settings.values():
        if other is not setting:
            wanted |= {name: list(values) for name, values in other.set.items() if name not in wants}
    return any(
        any(same(value, allowed) for value in wanted.get(name, ()) for allowed in values)
        for name, values in setting.follows.items()
    )
