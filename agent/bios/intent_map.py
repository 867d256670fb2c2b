"""The maps from intent to attributes, one file per vendor in agent/bios/maps; read once.

A map counts for the models that its pattern matches, within its range of BIOS versions. A name in it may
have a `*`, stands for its variants with a suffix (`IOMMU#0196`) and, as `A|B`, for the first that there is; a
list of values means that the BIOS knows one of them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field

from agent.bios.values import Value
from agent.checks.bmc_versions import at_least
from agent.errors import ParseError
from agent.profile_types import Part

MAPS = Path(__file__).parent / "maps"
Names = dict[
    str, Annotated[list[Value], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]
]


class Setting(Part):
    """What one value of an intent means."""

    set: Names = Field(description="Attribute names and the values that make it so")
    requires: Names = Field(default_factory=dict, description="What must be set too, or `set` is refused")
    follows: Names = Field(
        default_factory=dict,
        description="Settings under which the BIOS sees to `set` itself and lets nobody write it",
    )


def _short(value: Any) -> Any:
    """`{Attribute: value}` is short for `{set: {Attribute: value}}`."""
    return value if isinstance(value, dict) and "set" in value else {"set": value}


class IntentMap(Part):
    """Intents of a group of models."""

    name: str = Field(description="What messages call it")
    manufacturers: str = Field(description="Pattern of the whole Manufacturer, in any case")
    models: str = Field(description="Pattern of the whole Model, in any case")
    bios_min: str | None = Field(None, description="First BIOS version it holds for")
    bios_below: str | None = Field(None, description="First BIOS version it no longer holds for")
    checked: bool = Field(False, description="Seen to work on such a machine; false = from the sources alone")
    sources: list[str] = Field(description="Where the names and values are from")
    intents: dict[str, dict[str, Annotated[Setting, BeforeValidator(_short)]]] = Field(
        description="Intent, its value as text, and what it means"
    )

    def fits(self, manufacturer: str, model: str, version: str) -> bool:
        """Whether it is about this machine. A version that cannot be compared is not in a range."""
        if not _matches(self.manufacturers, manufacturer) or not _matches(self.models, model):
            return False
        try:
            new_enough = self.bios_min is None or at_least(version, self.bios_min)
            return new_enough and not (self.bios_below is not None and at_least(version, self.bios_below))
        except ParseError:
            return False


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, " ".join(text.split()), re.IGNORECASE) is not None


@cache
def load_maps(folder: Path = MAPS) -> tuple[IntentMap, ...]:
    """All maps, in the order of their files."""
    found: list[IntentMap] = []
    for file in sorted(folder.glob("*.yaml")):
        found += [IntentMap.model_validate(each) for each in yaml.safe_load(file.read_text("utf-8"))["maps"]]
    return tuple(found)
