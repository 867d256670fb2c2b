"""Contract of the schema: every field is described, every number has its unit in its name or none at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import node_profile, profile_docs
from agent.checks import registry
from agent.node_profile import NodeProfile, Part
from agent.profile_docs import profile_reference
from agent.profile_schema import json_schema
from agent.profile_units import UNITLESS, UNITS, same_but_unit, split_unit, unit_of


def fields() -> Iterator[tuple[str, str, dict[str, Any]]]:
    schema = NodeProfile.model_json_schema()
    for name, part in {"NodeProfile": schema, **schema["$defs"]}.items():
        for key, field in part.get("properties", {}).items():
            yield name, key, field


def holds_numbers(field: Any) -> bool:
    """Whether a field is a number, or a list or map of numbers."""
    if isinstance(field, dict):
        inner = [field.get("items"), field.get("additionalProperties"), *field.get("anyOf", [])]
        return field.get("type") in ("integer", "number") or any(holds_numbers(item) for item in inner)
    return False


def test_every_field_and_part_is_described() -> None:
    found = list(fields())
    assert len(found) > 80
    for part, key, field in found:
        assert len(field.get("description", "")) > 5, f"{part}.{key} needs a description"
    for part in Part.__subclasses__():
        assert part.__doc__, part


def test_every_number_has_a_unit_in_its_name_or_is_listed_as_having_none() -> None:
    numbers = {key for _, key, field in fields() if holds_numbers(field)}
    assert {"power_limit_w", "count", "speed_mb_s", "domains"} <= numbers
    for key in sorted(numbers):
        assert (unit_of(key) is None) == (key in UNITLESS), (
            f"{key}: add a unit suffix, or list it in UNITLESS"
        )
    assert numbers >= UNITLESS - {"pins", "schema_version", "sysctl"}, (
        "UNITLESS names a field that there is no more"
    )


def test_units() -> None:
    assert unit_of("speed_mb_s") == "MB/s"
    assert unit_of("fail_for_s") == "s"
    assert unit_of("gpus") is None
    assert split_unit("0.7kW") == ("0.7", "kW")
    assert split_unit("400 Gb/s") == ("400", "Gb/s")
    assert split_unit("400") is None
    assert split_unit("W700") is None
    assert same_but_unit("period_ms", ["period_s", "port"]) == "period_s"
    assert same_but_unit("periods", ["period_s"]) is None
    assert len(set(UNITS.values())) == len(UNITS)


def test_the_exported_schema_is_json_with_units_and_the_limits_of_every_check() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["$defs"]["Gpus"]["properties"]["power_limit_w"]["x-unit"] == "W"
    assert schema["additionalProperties"] is False
    assert "required" not in schema, "lower layers give what a file leaves out"
    assert set(schema["properties"]["limits"]["properties"]) == set(registry.load_all())
    assert set(schema["properties"]["checks"]["properties"]) == set(registry.load_all())
    references = {word for word in json.dumps(schema).split('"') if word.startswith("#/$defs/")}
    assert references
    for reference in references:
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_a_profile_cannot_be_changed() -> None:
    from agent.profile_loader import profile_from_dict

    profile = profile_from_dict({}).profile
    with pytest.raises(ValueError, match="frozen"):
        profile.gpus.count = 3  # type: ignore[misc]
    assert set(node_profile.__all__) <= set(dir(node_profile))


def test_the_reference_is_current() -> None:
    committed = Path(profile_docs.__file__).parents[1] / "docs" / "profile.md"
    assert committed.read_text(encoding="utf-8") == profile_reference(), (
        "run: python -m agent.profile_docs > docs/profile.md"
    )


def test_the_reference_has_every_key_and_platform() -> None:
    text = profile_reference()
    for _, key, field in fields():
        assert f"| `{key}` |" in text
        assert field["description"] in text
    for name in ("b300", "gb10", "generic-8gpu", "h20", "h200"):
        assert f" {name} " in text
