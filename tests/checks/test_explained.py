"""Every WARN and FAIL of every case says where its expectation comes from and what to do next."""

from __future__ import annotations

import types
import typing
from typing import Any, Union

import pytest
from check_cases import Case, all_cases, run_case
from pydantic import BaseModel

from agent.checks.registry import Check
from agent.model import BasisKind, Finding, Verdict
from agent.node_profile import NodeProfile

CASES = [case for case in all_cases() if case.kind == "fail"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_finding_says_what_was_expected_and_who_says_so(case: Case) -> None:
    findings, check = run_case(case)
    told = [f for f in findings.values() if f.verdict in (Verdict.WARN, Verdict.FAIL)]
    assert told, "a case of a failure has one"
    for finding in told:
        _explained(finding, check, f"{case} {finding.subject}: {finding.summary}")


def _explained(finding: Finding, check: Check, told: str) -> None:
    basis = finding.basis
    assert basis is not None, told
    assert basis.key, told
    assert finding.expected is not None, told
    assert finding.action.hint.endswith("."), told
    if basis.kind is BasisKind.PROFILE:
        assert _in_schema(NodeProfile, basis.key.split(".")), f"{told}: no profile key {basis.key}"
    if basis.kind is BasisKind.LIMIT:
        assert basis.key in check.limits.model_fields, f"{told}: no limit {basis.key} of {check.id}"


def _in_schema(kind: Any, path: list[str]) -> bool:
    """Whether a path of keys (any key of a map, any number of a list) leads somewhere in the schema."""
    if not path:
        return True
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(path[0])
        return field is not None and _in_schema(field.annotation, path[1:])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_in_schema(each, path) for each in arguments)
    if origin is typing.Annotated:
        return _in_schema(arguments[0], path)
    if origin is dict:
        if _in_schema(arguments[1], path[1:]):
            return True
        # The key of a setting may hold dots itself: vm.swappiness, chrony.service.
        return not isinstance(arguments[1], type) or not issubclass(arguments[1], BaseModel)
    if origin in (list, tuple):
        return path[0].isdecimal() and _in_schema(arguments[0], path[1:])
    return False


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("gpus.power_limit_w", True),
        ("gpus.pins.3.uuid", True),
        ("fabric.ports.0.rate_gbps", True),
        ("engines.glm.launch.rdma", True),
        ("host.sysctl.vm.swappiness", True),
        ("engines.glm.no_such", False),
        ("gpus.power", False),
        ("fabric.ports.first.rate_gbps", False),
    ],
)
def test_the_walk_through_the_schema(key: str, known: bool) -> None:
    assert _in_schema(NodeProfile, key.split(".")) is known
