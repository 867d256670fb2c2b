"""What a BIOS says of its attributes (AttributeRegistry, DSP8010): values, bounds, dependencies. Pure.

A registry describes the BIOS as it is now: an attribute that another one locks is marked read-only. So a mark
that a dependency explains counts only while that dependency holds for the settings as they are to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.bios.values import Value, same
from agent.checks.redfish_tree import said

#: Values that are listed in a message.
MOST_LISTED = 12


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute as its registry has it."""

    name: str
    kind: str
    values: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    lower: int | None = None
    upper: int | None = None
    step: int | None = None
    longest: int | None = None
    shortest: int | None = None
    read_only: bool = False
    gray_out: bool = False

    def allowed(self, current: Any) -> tuple[str, ...]:
        """The values of an enumeration as this service writes them: by name, or by what its menu shows."""
        return self.labels if str(current) in self.labels and str(current) not in self.values else self.values


@dataclass(frozen=True, slots=True)
class Term:
    """One condition of a dependency."""

    name: str
    prop: str
    condition: str
    value: Any
    joined_by: str

    def holds(self, state: Mapping[str, Any]) -> bool:
        """Whether it does; one that cannot be judged does not."""
        if self.prop != "CurrentValue" or self.name not in state:
            return False
        seen = state[self.name]
        if self.condition in ("EQU", "NEQ"):
            return same(seen, self.value) == (self.condition == "EQU")
        try:
            left, right = float(seen), float(self.value)
        except (TypeError, ValueError):
            return False
        return {
            "GTR": left > right,
            "GEQ": left >= right,
            "LSS": left < right,
            "LEQ": left <= right,
        }.get(self.condition, False)


@dataclass(frozen=True, slots=True)
class Dependency:
    """While its terms hold, a property of `target` is `value`."""

    target: str
    prop: str
    value: Any
    terms: tuple[Term, ...]

    def holds(self, state: Mapping[str, Any]) -> bool:
        """Terms from left to right, as the standard has them."""
        held = False
        for place, term in enumerate(self.terms):
            this = term.holds(state)
            held = this if place == 0 else (held or this if term.joined_by == "OR" else held and this)
        return held

    def words(self, state: Mapping[str, Any]) -> str:
        """What makes it hold."""
        told = [f"{term.name} is {said(str(state.get(term.name)))}" for term in self.terms]
        return " and ".join(told[:3])


@dataclass(frozen=True, slots=True)
class Registry:
    """All attributes and dependencies."""

    attributes: Mapping[str, Attribute]
    dependencies: tuple[Dependency, ...]

    def value_to_write(self, name: str, values: Sequence[Value], current: Any) -> tuple[Value | None, str]:
        """The first value that this attribute can have, as the service writes it; else why there is none."""
        known = self.attributes[name]
        problem = ""
        for value in values:
            found, problem = _fitting(known, value, current)
            if not problem:
                return found, ""
        return None, problem

    def lock(self, name: str, now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
        """Why this attribute cannot be set, or would do nothing, with the settings as they are to be."""
        known = self.attributes[name]
        locks = [each for each in self.dependencies if each.target == name and each.prop in _LOCKS]
        for each in locks:
            if each.value is True and each.holds(then):
                what = "does nothing" if each.prop == "GrayOut" else "cannot be set"
                return f"{name} {what} while {each.words(then)}"
        explained = any(each.value is True and each.holds(now) for each in locks)
        freed = any(each.value is False and each.holds(then) for each in locks)
        if known.read_only and not explained and not freed:
            return f"{name} is read-only"
        if known.gray_out and not explained and not freed:
            return f"{name} is greyed out: another setting makes it do nothing"
        return ""

    def implied(self, name: str, then: Mapping[str, Any]) -> Dependency | None:
        """The dependency by which the BIOS itself gives this attribute its value."""
        for each in self.dependencies:
            if each.target == name and each.prop == "CurrentValue" and each.holds(then):
                return each
        return None


_LOCKS = ("ReadOnly", "GrayOut")


def parse_registry(document: Mapping[str, Any]) -> Registry:
    """Read a registry; entries that make no sense are left out, and their names are then unknown."""
    entries = document.get("RegistryEntries")
    entries = entries if isinstance(entries, Mapping) else {}
    listed = [_attribute(each) for each in _objects(entries.get("Attributes"))]
    dependencies = [_dependency(each) for each in _objects(entries.get("Dependencies"))]
    return Registry(
        {each.name: each for each in listed if each is not None},
        tuple(each for each in dependencies if each is not None),
    )


def _attribute(entry: Mapping[str, Any]) -> Attribute | None:
    name, kind = entry.get("AttributeName"), entry.get("Type")
    if not isinstance(name, str) or not isinstance(kind, str):
        return None
    values = _objects(entry.get("Value"))
    return Attribute(
        name,
        kind,
        tuple(str(each["ValueName"]) for each in values if "ValueName" in each),
        tuple(str(each["ValueDisplayName"]) for each in values if "ValueDisplayName" in each),
        lower=_number(entry.get("LowerBound")),
        upper=_number(entry.get("UpperBound")),
        step=_number(entry.get("ScalarIncrement")),
        longest=_number(entry.get("MaxLength")),
        shortest=_number(entry.get("MinLength")),
        read_only=entry.get("ReadOnly") is True or entry.get("Immutable") is True,
        gray_out=entry.get("GrayOut") is True,
    )


def _dependency(entry: Mapping[str, Any]) -> Dependency | None:
    inner = entry.get("Dependency")
    if entry.get("Type") != "Map" or not isinstance(inner, Mapping):
        return None
    target, prop = inner.get("MapToAttribute"), inner.get("MapToProperty")
    terms = tuple(
        Term(
            str(each.get("MapFromAttribute")),
            str(each.get("MapFromProperty")),
            str(each.get("MapFromCondition")),
            each.get("MapFromValue"),
            str(each.get("MapTerms") or "AND"),
        )
        for each in _objects(inner.get("MapFrom"))
    )
    if not isinstance(target, str) or not isinstance(prop, str) or not terms:
        return None
    return Dependency(target, prop, inner.get("MapToValue"), terms)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _fitting(known: Attribute, value: Value, current: Any) -> tuple[Value | None, str]:
    """The value in the type of the attribute, and why it cannot be that."""
    shown = said(str(value))
    if known.kind == "Enumeration":
        allowed = known.allowed(current)
        found = next((each for each in allowed if same(each, value)), None)
        listed = ", ".join(said(each) for each in allowed[:MOST_LISTED])
        more = f" and {len(allowed) - MOST_LISTED} more" if len(allowed) > MOST_LISTED else ""
        return found, "" if found is not None else f"{known.name} cannot be {shown}; allowed: {listed}{more}"
    if known.kind == "Boolean":
        text = str(value).lower()
        return (text == "true", "") if text in ("true", "false") else (None, f"{known.name} is true or false")
    if known.kind == "Integer":
        return _whole(known, value, shown)
    if known.kind == "Password":
        return None, f"{known.name} is a password, which is not set here"
    length = len(str(value))
    if (known.longest is not None and length > known.longest) or length < (known.shortest or 0):
        between = f"{known.shortest or 0} to {known.longest or 'any number of'}"
        return None, f"{known.name} has {length} characters; allowed: {between}"
    return str(value), ""


def _whole(known: Attribute, value: Value, shown: str) -> tuple[Value | None, str]:
    try:
        number = int(str(value)) if not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None:
        return None, f"{known.name} cannot be {shown}: it is a whole number"
    lower, upper = known.lower, known.upper
    if (lower is not None and number < lower) or (upper is not None and number > upper):
        return None, f"{known.name} cannot be {shown}; allowed: {lower} to {upper}"
    if known.step and (number - (lower or 0)) % known.step:
        return (
            None,
            f"{known.name} cannot be {shown}; allowed: {lower or 0} and more in steps of {known.step}",
        )
    return number, ""
