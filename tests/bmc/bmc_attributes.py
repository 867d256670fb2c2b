"""BIOS attributes of a simulated machine and their registry document (AttributeRegistry, DSP8010)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bmc_reply import Document, message

Value = str | int | bool | None


@dataclass(frozen=True)
class Attribute:
    """One attribute. `hinges` = (other attribute, its value): read-only unless the other has that value."""

    name: str
    default: Value
    values: tuple[str, ...] = ()
    kind: str = "Enumeration"
    lower: int | None = None
    upper: int | None = None
    read_only: bool = False
    hinges: tuple[str, str] | None = None
    label: str = ""

    def problem(self, value: object) -> Document | None:
        """Why a value cannot be set; None if it can."""
        shown, where = str(value), (f"#/Attributes/{self.name}",)
        types = {"Integer": int, "Boolean": bool}.get(self.kind, str)
        if not isinstance(value, types) or (types is int and isinstance(value, bool)):
            words = f"The value '{shown}' for the property {self.name} is of a type that it cannot accept."
            return message("PropertyValueTypeError", words, shown, self.name, properties=where)
        if self.values and value not in self.values:
            words = (
                f"The value '{shown}' for the property {self.name} is not in the list of acceptable values."
            )
            return message("PropertyValueNotInList", words, shown, self.name, properties=where)
        if isinstance(value, int) and not isinstance(value, bool) and not self._within(value):
            words = f"The value '{shown}' for the property {self.name} is not in the supported range."
            return message("PropertyValueOutOfRange", words, shown, self.name, properties=where)
        return None

    def _within(self, value: int) -> bool:
        return (self.lower is None or value >= self.lower) and (self.upper is None or value <= self.upper)


def attributes(*each: Attribute | tuple[str, str, str]) -> dict[str, Attribute]:
    """By name; a triple is an enumeration: its name, its values with blanks between, its default."""
    found = [Attribute(one[0], one[2], _split(one[1])) if isinstance(one, tuple) else one for one in each]
    return {one.name: one for one in found}


def _split(values: str) -> tuple[str, ...]:
    """Values with `|` between them where one has a blank inside."""
    return tuple(values.split("|")) if "|" in values else tuple(values.split())


def registry_document(
    known: Iterable[Attribute],
    current: Mapping[str, Value],
    *,
    id_: str,
    owner: str,
    version: str,
    systems: tuple[str, str],
    numbered_values: bool = False,
    path: str,
) -> Document:
    """The registry: what there is, what it may be, and what depends on what.

    `numbered_values`: ValueName is a number and the text that the BMC takes is ValueDisplayName (Supermicro).
    """
    known = list(known)
    model, firmware = systems
    return {
        "@odata.id": path,
        "@odata.type": "#AttributeRegistry.v1_3_6.AttributeRegistry",
        "Id": id_,
        "Name": "BIOS Attribute Registry",
        "Description": "BIOS attributes of a SIMULATED machine",
        "Language": "en",
        "OwningEntity": owner,
        "RegistryVersion": version,
        "SupportedSystems": [{"ProductName": model, "FirmwareVersion": firmware}],
        "RegistryEntries": {
            "Attributes": [_entry(each, current, numbered_values) for each in known],
            "Dependencies": [_dependency(each) for each in known if each.hinges is not None],
        },
    }


def _entry(each: Attribute, current: Mapping[str, Value], numbered_values: bool) -> Document:
    hinged = each.hinges is not None and current.get(each.hinges[0]) != each.hinges[1]
    found: dict[str, Any] = {
        "AttributeName": each.name,
        "CurrentValue": current.get(each.name),
        "DefaultValue": each.default,
        "DisplayName": each.label or each.name,
        "GrayOut": hinged,
        "Hidden": False,
        "ReadOnly": each.read_only or hinged,
        "ResetRequired": True,
        "Type": each.kind,
    }
    if each.values:
        found["Value"] = [
            {"ValueName": str(place) if numbered_values else value, "ValueDisplayName": value}
            for place, value in enumerate(each.values)
        ]
    if each.kind == "Integer":
        found |= {"LowerBound": each.lower, "UpperBound": each.upper, "ScalarIncrement": 1}
    return found


def _dependency(each: Attribute) -> Document:
    assert each.hinges is not None
    other, value = each.hinges
    return {
        "Type": "Map",
        "DependencyFor": each.name,
        "Dependency": {
            "MapFrom": [
                {
                    "MapFromAttribute": other,
                    "MapFromCondition": "NEQ",
                    "MapFromProperty": "CurrentValue",
                    "MapFromValue": value,
                }
            ],
            "MapToAttribute": each.name,
            "MapToProperty": "ReadOnly",
            "MapToValue": True,
        },
    }
