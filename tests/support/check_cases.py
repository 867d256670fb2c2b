"""Running a check on a FakeNode, and the cases under tests/cases/CHECK/{pass,fail,unknown}/NAME.yaml.

A case changes the healthy H200 node and its profile, lets time pass if it has `samples`, and says what is:

    why: one sentence
    profile: {gpus: {power_limit_w: 500}}      # laid over the profile, map by map; null removes a key
    set: {"nvml.gpus.3.thermal.margin_c": 2}   # see FakeNode.set
    remove: ["nvml.gpus.7"]                    # in this order
    kmsg: ["3,900,5000000,-;NVRM: ..."]        # appended
    stale_s: 60                                # NVML readings are this old
    samples: [{after_s: 10, set: {...}}]       # further samples of the check, each after some time
    expect: {gpu3: {verdict: FAIL, class: soft, summary: regex, observed: 2, action: none}}
    others: PASS                               # every other subject
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode

from agent.checks.registry import Check, load_all
from agent.errors import SourceError
from agent.model import Finding, Verdict
from agent.node_profile import NodeProfile

CASES = Path(__file__).parents[1] / "cases"
#: The one in C where there is one: it is ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
KINDS = ("pass", "fail", "unknown")


@dataclass(frozen=True)
class Case:
    check: str
    kind: str
    name: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.check}-{self.kind}-{self.name}"


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case file, in order of path; read once, for nobody changes a case."""
    return tuple(
        Case(
            path.parent.parent.name,
            path.parent.name,
            path.stem,
            yaml.load(path.read_bytes(), LOADER),
        )
        for path in sorted(CASES.glob("*/*/*.yaml"))
    )


def run_check(check: Check, node: FakeNode, profile: NodeProfile) -> dict[str, Finding]:
    """One run as the runner does it: skip rule, limits of the profile, UNKNOWN for a failed source."""
    reason = check.skip(profile) if check.skip else None
    if reason is not None:
        return {"node": Finding("node", Verdict.SKIP, reason)}
    limits = check.limits(**profile.limits.get(check.id, {}))
    findings: dict[str, Finding] = {}
    try:
        for finding in check.run(node.sources, profile, limits):
            assert finding.subject not in findings, f"{check.id} judges {finding.subject} twice"
            findings[finding.subject] = finding
    except SourceError as cause:
        findings["node"] = Finding("node", Verdict.UNKNOWN, str(cause))
    return findings


def run_twice(check: Check, node: FakeNode, profile: NodeProfile) -> dict[str, Finding]:
    """As a one-shot pass does: a check of growth runs for the baseline and again after its interval."""
    if check.needs_interval_s:
        run_check(check, node, profile)
        node.clock.now_s += check.needs_interval_s
    return run_check(check, node, profile)


def run_case(case: Case) -> tuple[dict[str, Finding], Check]:
    """The findings of the last sample of a case; worked out once, for several tests look at them."""
    key = str(case)
    if key not in _FOUND:
        _FOUND[key] = _run(case)
    findings, check = _FOUND[key]
    return dict(findings), check


_FOUND: dict[str, tuple[dict[str, Finding], Check]] = {}


def _run(case: Case) -> tuple[dict[str, Finding], Check]:
    check = load_all()[case.check]
    node = h200_node()
    profile = h200_profile(case.data.get("profile"))
    _change(node, case.data)
    findings = run_check(check, node, profile)
    for sample in case.data.get("samples", []):
        node.clock.now_s += sample["after_s"]
        _change(node, sample)
        findings = run_check(check, node, profile)
    return findings, check


def _change(node: FakeNode, changes: dict[str, Any]) -> None:
    for path, value in changes.get("set", {}).items():
        node.set(path, value)
    for path in changes.get("remove", []):
        node.remove(path)
    if extra := changes.get("kmsg"):
        node.data["kmsg"] = [*node.data["kmsg"], *extra]
    node.nvml.stale_s = changes.get("stale_s", 0.0)
