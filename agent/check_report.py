"""A pass of `nodegate check` for people (table) and for CI systems (JUnit XML)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from agent.console import Out
from agent.explain_lines import explanation, flags
from agent.model import WORST_FIRST, ActionKind, Result, Verdict
from agent.one_shot import PassReport
from agent.rows import Row, cause_of, merge, names, shared_causes, subjects, worst_first

_JUNIT_CHILD = {Verdict.FAIL: "failure", Verdict.UNKNOWN: "error", Verdict.SKIP: "skipped"}


def show_table(report: PassReport, out: Out) -> None:
    """The banner, what was found, the worst first, what each finding means, and the verdict in one line."""
    out.banner(report.simulated)
    found = [(r.check, r.subject, _word(r), cause_of(r.finding.summary)) for r in report.results]
    telling = [row for row in found if row[2] != Verdict.PASS.value]
    rows = [*_merged(worst_first(telling, verdict=2)), *_passed(found)]
    rows = worst_first(rows, verdict=2)
    out.table(("CHECK", "SUBJECT", "VERDICT", "SUMMARY"), rows)
    _show_explanations(report, out)
    out.line()
    for note in report.notes:
        out.line(note)
    phase = f" for {report.phase}" if report.phase is not None else ""
    verdict = f"{report.node}: {report.verdict}{phase}"
    out.line(f"{verdict} ({_counts(report)}; {len(report.gating)} would block a gate; {_took(report)})")


def _show_explanations(report: PassReport, out: Out) -> None:
    """Under the table, what to do about each finding and, indented, what it rests on and what it does."""
    telling = [r for r in report.results if r.verdict in (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)]
    shared = shared_causes((r.check, _cause(r)) for r in telling if r.verdict is Verdict.UNKNOWN)
    rows = _merged(
        (r.check, r.subject, shared.get(_cause(r)) or _advice(report, r), tuple(explanation(report.entry(r))))
        for r in sorted(telling, key=lambda result: WORST_FIRST.index(result.verdict))
    )
    if rows:
        out.line()
    for check, subject, advice, lines in rows:
        out.line(f"-> {check} {subject}: {advice}" if advice else f"-> {check} {subject}")
        for line in lines:
            out.line(f"   {line}", "dim")


def _cause(result: Result) -> str:
    return cause_of(result.finding.summary) if result.verdict is Verdict.UNKNOWN else ""


def _word(result: Result) -> str:
    """The verdict, with the word that it does not count."""
    entry = {"shadow": result.shadow, "waived": result.waived}
    return f"{result.verdict.value} {flags(entry)}".rstrip()


def _passed(found: Sequence[Row]) -> list[Row]:
    """One row for each check that passes, whatever it read on each subject: people look for the others."""
    by_check: dict[str, list[Row]] = {}
    for row in found:
        if row[2] == Verdict.PASS.value:
            by_check.setdefault(row[0], []).append(row)
    shown = []
    for check, rows in by_check.items():
        texts = dict.fromkeys(row[3] for row in rows)
        first = next(iter(texts))
        summary = first if len(texts) == 1 else f"{first}; and alike"
        shown.append((check, subjects([row[1] for row in rows]), Verdict.PASS.value, summary))
    return merge(shown, 0, names)


def _merged(rows: Iterable[Row]) -> list[Row]:
    """Rows of check, subject and what else: the same said of several is said once."""
    return merge(merge(rows, 1, subjects), 0, names)


def junit(report: PassReport) -> str:
    """JUnit XML: a test case for each result; FAIL is a failure, UNKNOWN an error; a waiver skips."""
    counts = Counter(_junit_child(result) for result in report.results)
    suite = Element(
        "testsuite",
        name=_xml(f"nodegate {report.node}"),
        tests=str(len(report.results)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
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
        _add_case(suite, report, result)
    indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suite, encoding="unicode") + "\n"


def _junit_child(result: Result) -> str | None:
    child = _JUNIT_CHILD.get(result.verdict)
    return "skipped" if child and (result.shadow or result.waived) else child


def _add_case(suite: Element, report: PassReport, result: Result) -> None:
    case = SubElement(suite, "testcase", classname=_xml(result.check), name=_xml(result.subject))
    summary = _xml(result.finding.summary)
    child = _junit_child(result)
    lines = [] if result.verdict is Verdict.SKIP else explanation(report.entry(result))
    if child is None:
        why = "".join(f"\n{line}" for line in lines) if result.verdict is Verdict.WARN else ""
        SubElement(case, "system-out").text = f"{result.verdict}: {summary}{_xml(why)}"
        return
    message = (
        summary if child != "skipped" or result.verdict is Verdict.SKIP else f"{_word(result)}: {summary}"
    )
    element = SubElement(case, child, message=message)
    element.text = _xml("\n".join(filter(None, (_advice(report, result), *lines)))) or None


def _advice(report: PassReport, result: Result) -> str:
    """What to do, in one line; empty when nothing is advised."""
    explainer = report.explainer
    action = explainer.next_action(result) if explainer else result.finding.action
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
