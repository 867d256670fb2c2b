"""The reports of `nodegate check`: table for people, JUnit for CI."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

from runner_kit import loaded, make_check, profile, sources

from agent.check_report import junit, show_table
from agent.console import Out
from agent.holds import FILE_NAME, Holds, HoldStore, Waiver
from agent.known_waivers import KnownWaivers, read_waivers
from agent.model import Action, ActionKind, Basis, Finding, Phase, Verdict
from agent.node_profile import CheckOverride
from agent.one_shot import PassReport, run_pass

FINDINGS = [
    Finding("gpu0", Verdict.PASS, "20 C"),
    Finding(
        "gpu1",
        Verdict.FAIL,
        "-4 C <&> \x1b[31m",
        -4,
        ">= 5",
        "C",
        Action(ActionKind.APPLY_PLAY, "Run it.", "gpu"),
        basis=Basis.limit("min_margin_c"),
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


def test_the_table_says_what_a_finding_rests_on_and_what_it_does() -> None:
    lines = table().splitlines()
    at = lines.index("-> gpu.thermal_margin gpu1: Run it.")
    assert lines[at + 1 : at + 3] == [
        "   expected >= 5 C, from limit gpu.thermal_margin.min_margin_c (default)",
        "   closes glm",
    ]
    why = "-> gpu.thermal_margin gpu2: Find out why this cannot be read: a test. "
    assert any(line.startswith(why) for line in lines)
    assert "   gates nothing" in lines[lines.index("-> gpu.thermal_margin gpu3") :]


def test_shadow_and_waived_verdicts_are_shown_and_do_not_count() -> None:
    findings = [Finding("gpu0", Verdict.FAIL, "hot"), Finding("gpu1", Verdict.PASS, "cool")]
    waived = KnownWaivers((Waiver("b", "gpu0", "known", "op", 0.0, 9e9),))
    checks = {id_: make_check(id_, lambda *_: findings) for id_ in ("a", "b")}
    shadowed = loaded(profile(checks={"a": CheckOverride(shadow=True)}))
    found = run_pass(sources(), shadowed, checks, phase=None, only=None, node="n1", waivers=waived)
    assert (found.verdict, found.exit_code(), found.gating) == (Verdict.PASS, 0, frozenset())
    entries = {(e["check"], e["subject"]): e for e in found.to_json()["results"]}
    assert (entries["a", "gpu0"]["shadow"], entries["a", "gpu0"]["verdict"]) == (True, "FAIL")
    assert (entries["b", "gpu0"]["waived"], entries["b", "gpu0"]["gating"]) == (True, False)
    stream = io.StringIO()
    show_table(found, Out(stream))
    assert "FAIL (shadow)" in stream.getvalue()
    assert "FAIL (waived)" in stream.getvalue()
    assert "   shadow: the profile lets this check gate nothing" in stream.getvalue().splitlines()
    suite = ElementTree.fromstring(junit(found))
    assert (suite.attrib["failures"], suite.attrib["skipped"]) == ("0", "2")


def test_a_check_that_cannot_be_waived_counts_whatever_the_waiver_says() -> None:
    check = make_check("b", lambda *_: [Finding("gpu0", Verdict.FAIL, "lost")], waivable=False)
    waived = KnownWaivers((Waiver("b", "gpu0", "known", "op", 0.0, 9e9),))
    found = run_pass(sources(), loaded(), {"b": check}, phase=None, only=None, node="n1", waivers=waived)
    assert (found.verdict, found.gating) == (Verdict.FAIL, {("b", "gpu0")})


def test_waivers_that_cannot_be_read_waive_nothing_and_that_is_said(tmp_path: Path) -> None:
    assert read_waivers(tmp_path / "none", 100.0) == KnownWaivers()
    (tmp_path / FILE_NAME).write_text("{", encoding="utf-8")
    known = read_waivers(tmp_path, 100.0)
    assert known.waivers == ()
    assert known.note.startswith("waivers of the daemon are not known here")
    waivers = tuple(Waiver("c", s, "r", "op", 50.0, until) for s, until in (("gpu0", 60.0), ("gpu1", 200.0)))
    HoldStore(tmp_path).save(Holds(waivers=waivers))
    assert [w.subject for w in read_waivers(tmp_path, 100.0).waivers] == ["gpu1"]


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
    assert (
        failure.text
        == "Run it.\nexpected >= 5 C, from limit gpu.thermal_margin.min_margin_c (default)\ncloses glm"
    )
    assert {p.attrib["name"]: p.attrib["value"] for p in suite.iter("property")}["simulated"] == "true"


def test_evidence_that_several_checks_miss_for_one_reason_is_explained_once() -> None:
    silent = [Finding("gpu0", Verdict.UNKNOWN, "NVML does not start; next try in 3 s")]
    other = [Finding("gpu0", Verdict.UNKNOWN, "no answer")]
    checks = [make_check("gpu.a", lambda *_: silent), make_check("gpu.b", lambda *_: silent)]
    checks.append(make_check("gpu.c", lambda *_: other))
    stream = io.StringIO()
    by_id = {check.id: check for check in checks}
    show_table(run_pass(sources(), loaded(), by_id, phase=None, only=None, node="n1"), Out(stream))
    told = [line for line in stream.getvalue().splitlines() if line.startswith("->")]
    assert told[0] == "-> gpu.a, gpu.b gpu0: One cause: NVML does not start"
    assert len(told) == 2
    assert told[1].startswith("-> gpu.c gpu0: Find out why this cannot be read")
