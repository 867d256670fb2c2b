"""The JUnit form of a report: a test case for each step; FAIL is a failure, UNKNOWN an error (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from agent.checklist.record import RunRecord, StepFinding, StepRecord
from agent.checklist.report_text import headline, number, utc
from agent.model import Verdict

_CHILD = {Verdict.FAIL: "failure", Verdict.UNKNOWN: "error", Verdict.SKIP: "skipped"}


def junit(record: RunRecord, notes: Sequence[str]) -> str:
    """JUnit XML of a run. One that has not passed has a failure or an error, whatever its steps say."""
    cases = [_case(record, step) for step in record.steps]
    told = headline(record)
    told_by_a_step = any(case.find("failure") is not None for case in cases)
    if record.verdict is None or (told.tone == "bad" and not told_by_a_step):
        cases.append(_run_case(record))
    suite = Element(
        "testsuite",
        name=f"nodegate checklist {record.checklist} {record.node}",
        tests=str(len(cases)),
        failures=_count(cases, "failure"),
        errors=_count(cases, "error"),
        skipped=_count(cases, "skipped"),
        time=f"{_seconds(record.started_wall_s, record.ended_wall_s):.3f}",
    )
    properties = SubElement(suite, "properties")
    for name, value in _facts(record).items():
        SubElement(properties, "property", name=name, value=value)
    suite.extend(cases)
    SubElement(suite, "system-out").text = "\n".join((told.text, *told.advice, *record.outcome, *notes))
    indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suite, encoding="unicode") + "\n"


def _facts(record: RunRecord) -> dict[str, str]:
    return {
        "node": record.node,
        "simulated": str(record.simulated).lower(),
        "profile_hash": record.profile_hash,
        "run_id": record.run_id,
        "checklist": record.checklist,
        "verdict": str(record.verdict or ""),
        "who": record.who,
        "reason": record.reason,
        "started": utc(record.started_wall_s),
        "ended": utc(record.ended_wall_s),
        "boot_id": record.boot_id,
        "hardware": record.hardware,
        "origin": record.origin,
        "shortened": "; ".join(record.shortened),
    }


def _case(record: RunRecord, step: StepRecord) -> Element:
    case = Element("testcase", classname=f"nodegate.{record.checklist}", name=f"{step.id}: {step.title}")
    case.set("time", f"{_seconds(step.started_wall_s, step.ended_wall_s):.3f}")
    told = "\n".join(step_lines(step))
    child = "skipped" if step.verdict is None else _CHILD.get(step.verdict)
    if child is None:
        SubElement(case, "system-out").text = f"{step.verdict}: {step.summary}\n{told}".rstrip()
        return case
    message = step.summary if step.verdict is not None else "was not run to its end"
    SubElement(case, child, message=message).text = told or None
    return case


def _run_case(record: RunRecord) -> Element:
    """The run itself, where no step carries that it has not passed."""
    case = Element("testcase", classname=f"nodegate.{record.checklist}", name="the run as a whole")
    SubElement(case, "error", message=headline(record).text)
    return case


def step_lines(step: StepRecord) -> list[str]:
    """What a step found, in lines: hint, findings, answer and figures."""
    lines = [f"-> {step.hint}"] if step.hint else []
    for found in step.findings:
        lines.append(f"{found.verdict} {found.check} {found.subject}: {found.summary}".rstrip())
        lines += [f"   {line}" for line in (_seen(found), f"-> {found.hint}" if found.hint else "") if line]
    if step.answer is not None:
        lines.append(f"answer: {step.answer.text} ({step.answer.who}, {utc(step.answer.at_wall_s)})")
    for value in step.values:
        expected = f", expected {value.expected}" if value.expected is not None else ""
        figure = f"{number(value.value)} {value.unit}".rstrip()
        lines.append(f"{value.verdict} {value.name} {value.subject}: {figure}{expected}")
    return lines


def _seen(found: StepFinding) -> str:
    if not (found.observed or found.expected):
        return ""
    unit = f" {found.unit}" if found.unit else ""
    return f"observed {found.observed or '-'}{unit}, expected {found.expected or '-'}{unit}"


def _count(cases: Sequence[Element], child: str) -> str:
    return str(sum(case.find(child) is not None for case in cases))


def _seconds(started_wall_s: float | None, ended_wall_s: float | None) -> float:
    return max(0.0, ended_wall_s - started_wall_s) if started_wall_s and ended_wall_s else 0.0
