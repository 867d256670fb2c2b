"""Explanations: where numbers come from, what a result does to engines, what to do next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runner_kit import loaded, make_check, profile, result, snapshot

from agent.checks.registry import ClearedBy
from agent.evaluate import judge
from agent.explain import Explainer, result_view
from agent.explain_lines import explanation, flags
from agent.model import Action, Basis, Finding, Phase, Result, ServingClass, Verdict
from agent.node_profile import CheckOverride
from agent.profile_loader import load_profile

P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP
SITE = """\
platform: h200
gpus:
  power_limit_w: 600
host:
  sysctl:
    vm.swappiness: "1"
limits:
  gpu.power_limit:
    tolerance_w: 5
"""


def with_basis(basis: Basis | None) -> Result:
    found = result("gpu.power_limit", "gpu3", F)
    return replace(found, finding=replace(found.finding, expected=600, unit="W", basis=basis))


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        (Basis.profile("gpus.power_limit_w"), "profile gpus.power_limit_w (site.yaml:3)"),
        (Basis.profile("gpus.count"), r"profile gpus.count (h200:\d+)"),
        (Basis.profile("gpus.pcie"), "profile gpus.pcie (default)"),
        (Basis.profile("host.sysctl.vm.swappiness"), "profile host.sysctl.vm.swappiness (site.yaml:6)"),
        (Basis.limit("tolerance_w"), "limit gpu.power_limit.tolerance_w (site.yaml:9)"),
        (Basis.limit("other_w"), "limit gpu.power_limit.other_w (default)"),
        (Basis.device("default power limit"), "device: default power limit"),
        (Basis.standard("Xid table 2026.1"), "standard: Xid table 2026.1"),
    ],
)
def test_where_a_number_comes_from(
    basis: Basis, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(SITE, encoding="utf-8")
    explainer = Explainer(load_profile(Path("site.yaml")), {})
    said = explainer.expected_from(with_basis(basis))
    assert said is not None
    assert said == words or (words.startswith("profile gpus.count") and "h200" in said), said
    assert explainer.expected_from(with_basis(None)) is None


@pytest.mark.parametrize("rdma", [False, True])
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("shadow", [False, True])
@pytest.mark.parametrize("waived", [False, True])
@pytest.mark.parametrize("unknown_blocks", [False, True])
@pytest.mark.parametrize("verdict", [P, W, F, U, S])
@pytest.mark.parametrize("cls", list(ServingClass))
def test_what_is_explained_is_what_the_gate_judges(
    verdict: Verdict,
    cls: ServingClass,
    unknown_blocks: bool,
    waived: bool,
    shadow: bool,
    network: bool,
    rdma: bool,
) -> None:
    check = make_check("c", network=network, unknown_blocks_admission=unknown_blocks, serving_class=cls)
    overrides = {"c": CheckOverride(shadow=shadow)}
    shown = profile({"a": range(4), "b": range(4, 8)}, rdma=rdma, checks=overrides)
    found = replace(result("c", "gpu5", verdict, cls=cls, waived=waived), shadow=shadow)
    explained = Explainer(loaded(shown), {"c": check}).to_dict(found)["engines"]
    judged = judge(snapshot(found), shown, "b", {"c": check}, 1000.0)
    assert not any(judge(snapshot(found), shown, "a", {"c": check}, 1000.0).immediate)
    if verdict in (P, S):
        assert explained == []
        return
    (told,) = explained
    assert told["engine"] == "b"
    assert told["blocks_admission"] is bool(judged.admission_blockers)
    closes = bool(judged.immediate or judged.hard)
    assert (told["effect"] == "closes") is closes
    assert (told["effect"] == "degrades") is bool(judged.soft)
    if shadow or waived:
        assert (told["effect"], told["blocks_admission"]) == ("none", False)


def test_missing_evidence_says_what_would_bring_it() -> None:
    check = make_check("c", source="/dev/kmsg")
    view = result_view(result("c", "node", U), Explainer(loaded(), {"c": check}))
    leave_out = (
        "Where a machine cannot tell it at all, the profile leaves it out: checks: {c: {enabled: false}}."
    )
    assert view["action"]["hint"] == f"Find out why this cannot be read: /dev/kmsg. {leave_out}"
    keyed = make_check("c", source="/dev/kmsg", if_unreadable="Set x.y in the profile.")
    hint = result_view(result("c", "node", U), Explainer(loaded(), {"c": keyed}))["action"]["hint"]
    assert hint == "Find out why this cannot be read: /dev/kmsg. Set x.y in the profile."
    # What no waiver covers is not to be switched off either: no such advice.
    vital = make_check("c", source="NVML", waivable=False)
    hint = result_view(result("c", "node", U), Explainer(loaded(), {"c": vital}))["action"]["hint"]
    assert hint == "Find out why this cannot be read: NVML."
    assert result_view(result("c", "node", P), Explainer(loaded(), {"c": check}))["action"]["hint"] == ""


def test_a_finding_without_advice_gets_its_checks_usual_one() -> None:
    check = make_check("c", action=Action(hint="Look at it."))
    assert Explainer(loaded(), {"c": check}).next_action(result("c", "node", F)).hint == "Look at it."


def test_what_ends_a_sticky_fault_is_said() -> None:
    check = make_check("c", sticky=True, clears=frozenset({ClearedBy.REBOOT}))
    explainer = Explainer(loaded(), {"c": check})
    assert explainer.cleared_by(result("c", "node", F)) == ["reboot"]
    assert explainer.cleared_by(result("c", "node", P)) == []
    assert "stays until a reboot" in explanation(result_view(result("c", "node", F), explainer))


def test_the_lines_for_people() -> None:
    check = make_check("gpu.power_limit", serving_class=ServingClass.SOFT, phases=frozenset(Phase))
    found = replace(with_basis(Basis.limit("tolerance_w")), serving_class=ServingClass.SOFT, times=3)
    assert explanation(result_view(found, Explainer(loaded(), {"gpu.power_limit": check}))) == [
        "expected 600 W, from limit gpu.power_limit.tolerance_w (default)",
        "confirmed 3 times on this boot",
        "degrades glm; a gate that is closed stays closed",
    ]
    warned: dict[str, Any] = {"engines": [{"engine": "glm", "effect": "none", "blocks_admission": False}]}
    assert explanation(warned) == ["gates nothing"]
    assert flags({"shadow": True, "waived": True}) == "(shadow, waived)"
    assert flags({}) == ""


def test_a_subject_that_concerns_no_engine_gates_nothing_and_says_nothing_of_engines() -> None:
    check = make_check("c")
    found = result("c", "gpu7", F)
    explainer = Explainer(loaded(profile({"a": range(4)})), {"c": check})
    assert explainer.to_dict(found)["engines"] == []
    assert Finding("gpu7", F, "x").basis is None
