"""A pass of `nodegate check` for people (table) and for CI systems (JUnit XML)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from agent.console import Out
from agent.model import WORST_FIRST, ActionKind, Result, Verdict
from agent.one_shot import PassReport
from agent.rows import Row, cause_of, merge, names, subjects, worst_first

_JUNIT_CHILD = {Verdict.FAIL: "failure", Verdict.UNKNOWN: "error", Verdict.SKIP: "skipped"}


def show_table(report: PassReport, out: Out) -> None:
    """The banner, what was found, the worst first, what to do about it, and the verdict in one line."""
    out.banner(report.simulated)
    found = [(r.check, r.subject, r.verdict.value, cause_of(r.finding.summary)) for r in report.results]
    out.table(("CHECK", "SUBJECT", "VERDICT", "SUMMARY"), _merged(worst_first(found, verdict=2)))
    advice = _merged(
        (r.check, r.subject, what)
        for r in sorted(report.results, key=lambda result: WORST_FIRST.index(result.verdict))
        if r.verdict in (Verdict.FAIL, Verdict.WARN) and (what := _advice(r))
    )
    if advice:
        out.line()
        for check, subject, what in advice:
            out.line(f"-> {check} {subject}: {what}")
    out.line()
    phase = f" for {report.phase}" if report.phase is not None else ""
    verdict = f"{report.node}: {report.verdict}{phase}"
    out.line(f"{verdict} ({_counts(report)}; {len(report.gating)} would block a gate; {_took(report)})")


def _merged(rows: Iterable[Row]) -> list[Row]:
    """Rows of check, subject and what else: the same said of several is said once."""
    return merge(merge(rows, 1, subjects), 0, names)


def junit(report: PassReport) -> str:
    """JUnit XML: a test case for each result; FAIL is a failure, UNKNOWN an error."""
    counts = Counter(result.verdict for result in report.results)
    suite = Element(
        "testsuite",
        name=_xml(f"nodegate {report.node}"),
        tests=str(len(report.results)),
        failures=str(counts[Verdict.FAIL]),
        errors=str(counts[Verdict.UNKNOWN]),
        skipped=str(counts[Verdict.SKIP]),
        time=f"{report.duration_ms / 1000:.3f}",
    )
    properties = SubElement(suite, "properties")
    facts = {
        "simulated": str(report.simulated).lower(),
        "profile_hash": report.profile_hash,
        "phase": "" if report.phase is None else report.phase.value,
    }
    for name, value in facts.items():
        SubElement(properties, "property", name=name, value=_xml(value))
    for result in report.results:
        _add_case(suite, result)
    indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suite, encoding="unicode") + "\n"


def _add_case(suite: Element, result: Result) -> None:
    case = SubElement(suite, "testcase", classname=_xml(result.check), name=_xml(result.subject))
    summary = _xml(result.finding.summary)
    if result.verdict in _JUNIT_CHILD:
        child = SubElement(case, _JUNIT_CHILD[result.verdict], message=summary)
        child.text = _xml(_advice(result)) or None
    else:
        SubElement(case, "system-out").text = f"{result.verdict}: {summary}"


def _advice(result: Result) -> str:
    """What to do, in one line; empty when nothing is advised."""
    action = result.finding.action
    return action.hint or ("" if action.kind is ActionKind.NONE else action.kind.value.replace("_", " "))


def _counts(report: PassReport) -> str:
    counts = Counter(result.verdict for result in report.results)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in WORST_FIRST if counts[verdict])


def _took(report: PassReport) -> str:
    ms = report.duration_ms
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"


def _xml(text: str) -> str:
    """Text without the control characters that XML cannot hold."""
    return "".join(char if char.isprintable() or char in "\t\n" else "\ufffd" for char in text)
