"""Typing a tree by a pydantic model, and the JSON schema that `nodegate profile schema` exports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from agent.errors import ConfigError
from agent.node_profile import LOADER_CHECKS, NodeProfile
from agent.profile_faults import fault, path_of, wants_text
from agent.profile_tree import Path, Table, find, to_plain
from agent.profile_units import unit_of


@dataclass(frozen=True, slots=True)
class Typed:
    """What typing a tree gave: the model, or its faults with the paths that are at fault."""

    model: BaseModel | None
    faults: list[ConfigError]
    paths: tuple[Path, ...]
    missing: tuple[Path, ...]
    as_text: frozenset[Path]


def validate_tree(
    model: type[BaseModel], root: Table, *, at: Path = (), as_text: frozenset[Path] = frozenset()
) -> Typed:
    """Type the map at a path of the tree.

    JSON mode and strict: `"8"` is no number and `1` no boolean. An unquoted number or boolean where text is
    wanted (a driver version, an environment variable) is taken as it is spelled.
    """
    here = find(root, at)
    subtree = here if isinstance(here, Table) else Table(root.mark)
    text = {path[len(at) :] for path in as_text if path[: len(at)] == at}
    while True:
        data = json.dumps(to_plain(subtree, as_text=frozenset(text)))
        try:
            typed = model.model_validate_json(data, strict=True, context={LOADER_CHECKS: True})
            return Typed(typed, [], (), (), frozenset((*at, *path) for path in text))
        except ValidationError as cause:
            errors = cause.errors(include_url=False)
        more = {path_of(error) for error in errors if wants_text(error, subtree)} - text
        if not more:
            break
        text |= more
    return Typed(
        None,
        [fault(error, root, model, at) for error in errors],
        tuple((*at, *path_of(error)) for error in errors),
        tuple((*at, *path_of(error)) for error in errors if error["type"] == "missing"),
        frozenset((*at, *path) for path in text),
    )


def json_schema() -> dict[str, Any]:
    """The JSON schema of a profile file: descriptions, units (`x-unit`), and the limits of every check.

    Nothing is required in it: the lower layers fill in what a site's file leaves out.
    """
    from agent.checks import registry  # late: checks import the profile

    schema = NodeProfile.model_json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    limits: dict[str, Any] = {}
    for check in registry.load_all().values():
        part = check.limits.model_json_schema(ref_template=f"#/$defs/{check.id}.{{model}}")
        definitions.update({f"{check.id}.{name}": item for name, item in part.pop("$defs", {}).items()})
        limits[check.id] = {"description": f"Tolerances of {check.id}: {check.title}", **part}
    override = schema["properties"]["checks"].pop("additionalProperties")
    schema["properties"]["limits"].pop("additionalProperties", None)
    schema["properties"]["limits"] |= {"properties": limits, "additionalProperties": False}
    ids = dict.fromkeys(limits, override)
    schema["properties"]["checks"] |= {"properties": ids, "additionalProperties": False}
    for item in (schema, *definitions.values(), *limits.values()):
        _annotate(item)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "nodegate node profile",
    }


def _annotate(item: dict[str, Any]) -> None:
    """Add units and drop `required`: lower layers may give what a file leaves out."""
    item.pop("required", None)
    for name, field in item.get("properties", {}).items():
        unit = unit_of(name)
        if unit:
            field["x-unit"] = unit
