"""Every field of the profile is somebody's: applied by a role and verified by a check, or told why not.

The rows are in agent/provision/fields.yaml. What a role wants is worked out by the role's own code on nodes
in memory, what a check says by a run on the healthy fake node: nothing here only compares names.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_cases import run_twice
from fake_h200 import h200_node, h200_profile_data, merged
from profile_leaves import Leaf, leaves, other_value, value_at, with_value
from repo_files import ROOT
from role_wants import ROLES, wants

from agent.checks.registry import load_all
from agent.model import Finding
from agent.node_profile import NodeProfile

CLASSES = ("applied", "means", "fact", "tolerance", "reach", "own")
CHECKS = load_all()
LEAVES = {str(leaf): leaf for leaf in leaves()}
CHANGES = yaml.safe_load((Path(__file__).parent / "field_changes.yaml").read_text())


@cache
def table() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((ROOT / "agent" / "provision" / "fields.yaml").read_text())


def is_about(row: str, leaf: str) -> bool:
    return row == leaf or (row.endswith(".**") and leaf.startswith(row[:-2]))


def rows(*classes: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, row) for kind in classes for name, row in table()[kind].items()]


def each_row(*classes: str) -> Any:
    found = rows(*classes)
    return pytest.mark.parametrize(("name", "row"), found, ids=[name for name, _ in found])


@cache
def _with(extra: str) -> NodeProfile:
    return NodeProfile.model_validate(merged(h200_profile_data(), yaml.safe_load(extra)))


def before(name: str) -> NodeProfile:
    """The healthy node's profile, with what the field needs."""
    return _with(yaml.safe_dump(CHANGES.get(name, {}).get("with", {})))


@cache
def wanted_before(role: str, extra: str) -> str:
    """What a role wants for such a profile."""
    return wants(role, _with(extra))


@cache
def after(name: str) -> NodeProfile:
    """The same with another value of the field."""
    data = before(name).model_dump(mode="json")
    leaf: Leaf = LEAVES[name]
    change = CHANGES.get(name, {})
    value = change["to"] if "to" in change else other_value(leaf, value_at(data, leaf.path))
    assert "to" in change or value is not None, f"{name}: write another value into field_changes.yaml"
    assert value != value_at(data, leaf.path), f"{name}: {value!r} is what the healthy profile has"
    return NodeProfile.model_validate(merged(with_value(data, leaf.path, value), change.get("also", {})))


def findings(check: str, profile: NodeProfile, name: str) -> dict[str, Any]:
    node = h200_node()
    for path, value in CHANGES.get(name, {}).get("set", {}).items():
        node.set(path, value)
    return run_twice(CHECKS[check], node, profile)


@cache
def differing(check: str, name: str) -> list[Finding]:
    """What the check says otherwise once the field has another value: before and after."""
    assert check in CHECKS, f"{name}: there is no check {check}"
    old, new = findings(check, before(name), name), findings(check, after(name), name)
    told = []
    for subject in old | new:
        pair = [found[subject] for found in (old, new) if subject in found]
        if len({(one.verdict, one.expected, one.summary) for one in pair}) + (2 - len(pair)) > 1:
            told += pair
    return told


def plays(check: str, name: str) -> set[str | None]:
    """The plays that those findings name."""
    return {finding.action.play for finding in differing(check, name)}


def test_every_field_is_in_one_row_and_every_row_is_about_a_field() -> None:
    assert tuple(table()) == CLASSES
    names = [name for kind in CLASSES for name in table()[kind]]
    for leaf in LEAVES:
        assert len([name for name in names if is_about(name, leaf)]) == 1, f"{leaf} needs exactly one row"
    for name in names:
        assert any(is_about(name, leaf) for leaf in LEAVES), f"there is no field {name}"
    assert set(CHANGES) <= set(LEAVES), "a change for a field that is not there"


def test_every_field_is_part_of_what_reaches_the_node() -> None:
    """The hash in `nodegate status` is of the whole profile: no field is kept out of it."""
    assert [str(leaf) for leaf in leaves() if leaf.field.exclude] == []


def test_what_only_the_agent_reads_and_how_to_reach_something_says_why() -> None:
    for name, why in rows("reach", "own"):
        assert isinstance(why, str) and len(why) > 8, name
    for name, row in rows("means", "fact"):
        assert len(row["why"]) > 8, name


@each_row("applied", "means")
def test_the_role_wants_something_else(name: str, row: dict[str, Any]) -> None:
    assert row["by"] and set(row["by"]) <= set(ROLES)
    for role in row["by"]:
        extra = yaml.safe_dump(CHANGES.get(name, {}).get("with", {}))
        assert wanted_before(role, extra) != wants(role, after(name)), f"{role} does not look at {name}"


@each_row("applied", "fact", "tolerance")
def test_each_check_tells_the_difference(name: str, row: dict[str, Any]) -> None:
    assert row["checks"]
    for check in row["checks"]:
        assert differing(check, name), f"{check} does not look at {name}"


@each_row("applied")
def test_a_check_names_the_role_that_repairs_it(name: str, row: dict[str, Any]) -> None:
    """One of the field's roles, by one of its checks: in the finding, or as that check's usual action."""
    named = {play for check in row["checks"] for play in (*plays(check, name), CHECKS[check].action.play)}
    assert set(row["by"]) & named, f"{row['checks']} name {named - {None}}, the roles are {row['by']}"


@each_row("fact")
def test_what_is_recorded_names_the_play_that_records_it(name: str, row: dict[str, Any]) -> None:
    told = {play for check in row["checks"] for play in plays(check, name)}
    if "play" in row:
        assert row["play"] in told | {CHECKS[check].action.play for check in row["checks"]}
    else:
        assert not told - {None}, f"{name} is a fact, and a play is named for it: {told}"
