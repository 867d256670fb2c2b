"""A checklist and a record for people."""

from __future__ import annotations

from agent.checklist.model import Checklist, GateStep, MeasureStep, QuestionStep, Step
from agent.checklist.record import RunRecord
from agent.console import Out
from agent.model import Verdict


def show_checklist(checklist: Checklist, out: Out) -> None:
    """Every step, what it runs and why."""
    out.line(f"{checklist.name}: {checklist.title}", "bold")
    out.line(checklist.why)
    if checklist.needs == "closed":
        out.line("Only while no gate is open: nodegate maintenance enter --reason TEXT first.")
    out.line()
    rows = [(step.id, _what(step), step.title, f"{step.timeout_s:g} s", step.why) for step in checklist.steps]
    out.table(("step", "runs", "title", "within", "why"), rows)


def _what(step: Step) -> str:
    if isinstance(step, MeasureStep):
        params = ", ".join(f"{key}={value}" for key, value in step.params.items() if value is not None)
        return f"{step.measure} ({params})" if params else step.measure
    if isinstance(step, QuestionStep):
        words = " | ".join(choice.answer for choice in step.choices)
        return f"asks: {words or (step.number.unit if step.number else '')}"
    if isinstance(step, GateStep):
        return f"gate (soak_s={step.gate.soak_s:g})"
    return " ".join(step.check)


def show_record(record: RunRecord, out: Out) -> None:
    """The steps with their verdicts, what to do about the bad ones, and what the run did to the node."""
    out.line(f"{record.title}: run {record.run_id} on {record.node} by {record.who}", "bold")
    if record.simulated:
        out.line("SIMULATED: this run proves nothing about any hardware", "black on yellow")
    if record.shortened:
        out.line(f"SHORTENED: {', '.join(record.shortened)}", "yellow")
    rows = [
        (step.id, step.verdict or "not done", _took(step.started_wall_s, step.ended_wall_s), step.summary)
        for step in record.steps
    ]
    out.table(("step", "verdict", "took", "what was found"), rows)
    for step in record.steps:
        if step.verdict in (Verdict.FAIL, Verdict.UNKNOWN) and step.hint:
            out.line(f"-> {step.id}: {step.hint}")
    for line in record.outcome:
        out.line(f"   {line}", "dim")
    ended = record.verdict.value if record.verdict is not None else "not ended; go on with --resume"
    out.line(f"{record.checklist}: {ended}")


def _took(started_s: float | None, ended_s: float | None) -> str:
    return "" if started_s is None or ended_s is None else f"{ended_s - started_s:.0f} s"
