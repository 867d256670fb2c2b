"""The reports of `nodegate check`: table for people, JUnit for CI."""

from __future__ import annotations

import io
from xml.etree import ElementTree

from runner_kit import loaded, make_check, sources

from agent.check_report import junit, show_table
from agent.console import Out
from agent.model import Action, ActionKind, Finding, Phase, Verdict
from agent.one_shot import PassReport, run_pass

FINDINGS = [
    Finding("gpu0", Verdict.PASS, "20 C"),
    Finding(
        "gpu1", Verdict.FAIL, "-4 C <&> \x1b[31m", action=Action(ActionKind.APPLY_PLAY, "Run it.", "gpu")
    ),
    Finding("gpu2", Verdict.UNKNOWN, "no answer"),
    Finding("gpu3", Verdict.WARN, "6 C"),
    Finding("gpu4", Verdict.SKIP, "left out"),
]


def report(simulated: bool = False) -> PassReport:
    check = make_check("gpu.thermal_margin", lambda *_: FINDINGS)
    return run_pass(
        sources(simulated=simulated), loaded(), {check.id: check}, phase=Phase.ADMISSION, only=None, node="n1"
    )


def table(simulated: bool = False) -> str:
    stream = io.StringIO()
    show_table(report(simulated), Out(stream))
    return stream.getvalue()


def test_the_table_has_a_row_for_each_result_advice_and_the_verdict() -> None:
    text = table()
    assert [line.split()[:3] for line in text.splitlines()[:3]] == [
        ["CHECK", "SUBJECT", "VERDICT"],
        ["gpu.thermal_margin", "gpu1", "FAIL"],
        ["gpu.thermal_margin", "gpu2", "UNKNOWN"],
    ]
    assert [line.split()[2] for line in text.splitlines()[3:6]] == ["WARN", "PASS", "SKIP"]
    assert "-> gpu.thermal_margin gpu1: Run it." in text
    assert "n1: FAIL for admission (1 FAIL, 1 UNKNOWN, 1 WARN, 1 PASS, 1 SKIP; 2 would block a gate; " in text


def test_only_a_simulated_table_says_so() -> None:
    assert table(simulated=True).startswith("SIMULATED")
    assert "SIMULATED" not in table()


def test_junit_can_be_read_and_counts_each_kind() -> None:
    suite = ElementTree.fromstring(junit(report(simulated=True)))
    assert {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "1", "errors": "1", "skipped": "1",
    }  # fmt: skip
    kinds = {case.attrib["name"]: [child.tag for child in case] for case in suite.iter("testcase")}
    assert kinds == {
        "gpu0": ["system-out"],
        "gpu1": ["failure"],
        "gpu2": ["error"],
        "gpu3": ["system-out"],
        "gpu4": ["skipped"],
    }
    failure = next(suite.iter("failure"))
    assert failure.attrib["message"] == "-4 C <&> \ufffd[31m"
    assert failure.text == "Run it."
    assert {p.attrib["name"]: p.attrib["value"] for p in suite.iter("property")}["simulated"] == "true"
