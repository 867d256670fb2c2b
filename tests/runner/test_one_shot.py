"""One pass without a daemon: selection, deadlines, the second sample, verdict, exit code and JSON."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from runner_kit import loaded, make_check, profile, sources

from agent.checks.registry import Check
from agent.errors import ConfigError
from agent.model import Action, ActionKind, Basis, Finding, Phase, Verdict
from agent.node_profile import CheckOverride
from agent.one_shot import PassReport, run_pass, select

P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP


def says(**verdicts: Verdict) -> Any:
    """A check function with these verdicts by subject."""
    return lambda *_: [Finding(subject, verdict, f"reads {verdict}") for subject, verdict in verdicts.items()]


def one_pass(*checks: Check, **options: Any) -> PassReport:
    defaults: dict[str, Any] = {"phase": Phase.ADMISSION, "only": None, "node": "n1"}
    by_id = {check.id: check for check in checks}
    return run_pass(
        options.pop("sources", sources()), options.pop("profile", loaded()), by_id, **defaults | options
    )


@pytest.mark.parametrize(
    ("verdicts", "verdict", "code"),
    [
        ([P, P], P, 0),
        ([P, W], W, 0),
        ([P, S], P, 0),
        ([S, S], S, 0),
        ([P, U], U, 2),
        ([F, U], F, 1),
        ([W, F], F, 1),
    ],
)
def test_verdict_and_exit_code(verdicts: list[Verdict], verdict: Verdict, code: int) -> None:
    report = one_pass(*(make_check(f"c{i}", says(node=v)) for i, v in enumerate(verdicts)))
    assert (report.verdict, report.exit_code()) == (verdict, code)


def test_the_json_has_exactly_the_published_form() -> None:
    action = Action(ActionKind.CONTACT_SUPPORT, "Open a case.")
    basis = Basis.limit("min_margin_c")
    hot = Finding(
        "gpu3", F, "margin is -4 C", observed=-4, expected=">= 5", unit="C", action=action, basis=basis
    )
    report = one_pass(make_check("gpu.thermal_margin", lambda *_: [hot]))
    data = json.loads(json.dumps(report.to_json()))
    assert data.pop("duration_ms") >= 0
    first_seen = data["results"][0].pop("first_seen")
    assert time.strptime(first_seen, "%Y-%m-%dT%H:%M:%SZ")
    assert data == {
        "schema": 1, "node": "n1", "simulated": False, "profile_hash": "0" * 64, "phase": "admission",
        "verdict": "FAIL", "notes": [],
        "results": [{
            "check": "gpu.thermal_margin", "subject": "gpu3", "verdict": "FAIL", "gating": True,
            "observed": -4, "expected": ">= 5", "unit": "C", "summary": "margin is -4 C",
            "action": {"kind": "contact_support", "hint": "Open a case.", "play": None},
            "expected_from": "limit gpu.thermal_margin.min_margin_c (default)", "times": 1, "part": "",
            "engines": [{"engine": "glm", "effect": "closes", "blocks_admission": True}],
            "cleared_by": [], "shadow": False, "waived": False,
        }],
    }  # fmt: skip


def test_numbers_that_json_cannot_hold_are_text() -> None:
    odd = Finding("node", F, "odd", observed=float("nan"), expected=float("inf"))
    (found,) = one_pass(make_check("c", lambda *_: [odd])).to_json()["results"]
    assert (found["observed"], found["expected"]) == ("nan", "inf")


def test_gating_is_what_would_block_a_gate() -> None:
    report = one_pass(
        make_check("a", says(gpu0=F, gpu1=U, gpu2=W, gpu3=P)),
        make_check("b", says(node=U), unknown_blocks_admission=False),
        make_check("c", says(node=F), phases=frozenset({Phase.SERVING})),
        phase=None,
    )
    assert report.gating == {("a", "gpu0"), ("a", "gpu1")}
    assert report.to_json()["phase"] is None


def test_results_are_in_order_and_gpu10_comes_after_gpu9() -> None:
    report = one_pass(make_check("b"), make_check("a", says(gpu10=P, gpu9=P, node=P)))
    assert [(r.check, r.subject) for r in report.results] == [
        ("a", "gpu9"), ("a", "gpu10"), ("a", "node"), ("b", "node"),
    ]  # fmt: skip


def test_checks_run_at_the_same_time_and_a_hung_one_costs_only_its_own_verdict() -> None:
    release = threading.Event()

    def hang(*_: Any) -> list[Finding]:
        release.wait(60)
        return [Finding("node", P, "too late")]

    try:
        report = one_pass(
            make_check("hung1", hang, deadline_s=0.3),
            make_check("hung2", hang, deadline_s=0.3, needs_interval_s=0.01),
            make_check("ok"),
        )
    finally:
        release.set()
    assert {r.check: r.verdict for r in report.results} == {"hung1": U, "hung2": U, "ok": P}
    assert report.results[0].finding.summary == "no answer within 0.3 s"
    assert report.exit_code() == 2


def test_an_exception_is_unknown_with_its_text() -> None:
    def broken(*_: Any) -> list[Finding]:
        raise KeyError("x")

    (found,) = one_pass(make_check("c", broken)).results
    assert (found.subject, found.verdict, found.finding.summary) == ("node", U, "KeyError: 'x'")


def test_counters_are_sampled_twice_with_one_wait_for_all() -> None:
    runs: dict[str, list[float]] = {"a": [], "b": [], "plain": [], "first": []}

    def counters(name: str) -> Any:
        def run(*_: Any) -> list[Finding]:
            runs[name].append(time.monotonic())
            baseline = len(runs[name]) == 1 and name != "first"
            return [Finding("node", U if baseline else P, "baseline" if baseline else "0 errors")]

        return run

    waits: list[float] = []
    report = one_pass(
        make_check("a", counters("a"), needs_interval_s=0.1),
        make_check("b", counters("b"), needs_interval_s=0.2),
        make_check("plain", counters("plain")),
        make_check("first", counters("first"), needs_interval_s=0.1),
        on_sampling=waits.append,
    )
    assert {r.check: r.verdict for r in report.results} == {"a": P, "b": P, "plain": U, "first": P}
    assert {name: len(times) for name, times in runs.items()} == {"a": 2, "b": 2, "plain": 1, "first": 1}
    assert waits == [0.2]
    assert runs["a"][1] - runs["a"][0] >= 0.2
    one_pass(make_check("a", lambda *_: [Finding("node", U, "")], needs_interval_s=99.0), sample_s=0.0)


def test_left_out_checks_show_why() -> None:
    report = one_pass(
        make_check("off"),
        make_check("skipped", skip=lambda _: "no fabric"),
        profile=loaded(profile(checks={"off": CheckOverride(enabled=False)})),
    )
    assert [r.finding.summary for r in report.results] == ["switched off by the profile", "no fabric"]


def test_limits_that_the_check_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"limits\.c\.least"):
        one_pass(make_check("c"), profile=loaded(profile(limits={"c": {"least": 1}})))


CHECKS = {
    id_: make_check(id_, phases=frozenset(phases))
    for id_, phases in {
        "gpu.count": [Phase.ADMISSION, Phase.SERVING],
        "gpu.lost": [Phase.ADMISSION],
        "engine.health": [Phase.SERVING],
    }.items()
}


@pytest.mark.parametrize(
    ("phase", "only", "ids"),
    [
        (None, None, ["engine.health", "gpu.count", "gpu.lost"]),
        (Phase.ADMISSION, None, ["gpu.count", "gpu.lost"]),
        (Phase.SERVING, None, ["engine.health", "gpu.count"]),
        (Phase.ADMISSION, "gpu.*", ["gpu.count", "gpu.lost"]),
        (Phase.ADMISSION, "gpu.lost", ["gpu.lost"]),
    ],
)
def test_selection(phase: Phase | None, only: str | None, ids: list[str]) -> None:
    assert [check.id for check in select(CHECKS, phase, only)] == ids


@pytest.mark.parametrize(
    ("phase", "only", "text"),
    [
        (
            Phase.ADMISSION,
            "gpu.cout",
            "no check matches 'gpu.cout' in phase admission; did you mean gpu.count",
        ),
        (Phase.ADMISSION, "engine.*", "it does with --phase serving"),
        (None, "%%%", "the checks are engine.health, gpu.count, gpu.lost"),
        (Phase.MAINTENANCE, None, "the checks are none"),
    ],
)
def test_an_empty_selection_is_an_error_that_helps(phase: Phase | None, only: str | None, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        select(CHECKS, phase, only)
    assert text in str(error.value)
