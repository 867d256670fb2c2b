"""Every case under tests/cases: one situation, one check, what it must say."""

import re

import pytest
from check_cases import Case, all_cases, run_case

CASES = all_cases()
KNOWN = {"why", "profile", "set", "remove", "kmsg", "stale_s", "samples", "expect", "others"}
EXPECTABLE = {"verdict", "class", "summary", "observed", "expected", "unit", "action", "play", "basis"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    assert set(case.data) <= KNOWN
    assert case.data["why"]
    findings, check = run_case(case)
    expect = case.data["expect"]
    assert expect.keys() <= findings.keys()
    for subject, want in expect.items():
        assert set(want) <= EXPECTABLE
        found = findings[subject]
        told = f"{subject}: {found}"
        assert found.verdict == want["verdict"], told
        for key in ("observed", "expected", "unit"):
            if key in want:
                assert getattr(found, key) == want[key], told
        if "class" in want:
            assert (found.serving_class or check.serving_class) == want["class"], told
        if "summary" in want:
            assert re.search(want["summary"], found.summary), told
        if "action" in want:
            assert found.action.kind == want["action"], told
        if "basis" in want:
            assert found.basis is not None, told
            assert found.basis.key == want["basis"], told
        if "play" in want:
            assert found.action.play == want["play"], told
    others = {subject: found for subject, found in findings.items() if subject not in expect}
    assert not others or "others" in case.data
    for subject, found in others.items():
        assert found.verdict == case.data["others"], f"{subject}: {found}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_verdict_fits_the_folder(case: Case) -> None:
    findings, _ = run_case(case)
    verdicts = {finding.verdict for finding in findings.values()}
    wanted = {"pass": {"PASS"}, "fail": {"FAIL", "WARN"}, "unknown": {"UNKNOWN"}}[case.kind]
    assert verdicts & wanted
    if case.kind == "pass":
        assert verdicts <= {"PASS", "SKIP"}
