"""The page of a report: one file, no script, nothing from elsewhere; for a screen, a phone and paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jinja2
from markupsafe import Markup

from agent import __version__
from agent.checklist.record import RunRecord, StepRecord, Value
from agent.checklist.report_plots import Figure, figures, quantity
from agent.checklist.report_text import headline, number, step_at_fault, took, utc
from agent.model import WORST_FIRST, Verdict
from agent.rows import natural

_KINDS = {"check": "checks", "measure": "measured", "question": "asked", "gate": "gate"}


@dataclass(frozen=True, slots=True)
class ValueTable:
    """Figures of a step: a row for each subject, a column for each quantity (name, unit, expected)."""

    columns: tuple[tuple[str, str, str], ...]
    rows: tuple[tuple[str, tuple[Value | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class StepView:
    """A step as the page shows it."""

    number: int
    step: StepRecord
    kind: str
    values: ValueTable | None
    figures: tuple[Figure, ...]
    at_fault: bool
    #: Whether its findings are folded away on a screen: nothing in them needs a reader.
    folded: bool


def page(record: RunRecord, notes: Sequence[str]) -> str:
    """The page of a run."""
    stopped = step_at_fault(record) if headline(record).tone == "bad" else None
    views = [
        StepView(
            at,
            step,
            _KINDS[step.kind],
            value_table(step.values),
            tuple(figures(record, at - 1)),
            step is stopped,
            _all_passed(step),
        )
        for at, step in enumerate(record.steps, 1)
    ]
    text = _template().render(
        run=record,
        headline=headline(record),
        steps=views,
        notes=[*notes, *_unplaced(record)],
        counts=_counts(record),
        version=__version__,
    )
    # A template leaves blank lines; the page is also read as a file.
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def value_table(values: Iterable[Value]) -> ValueTable | None:
    """The figures as a table; None for none."""
    columns: dict[tuple[str, str, str], None] = {}
    rows: dict[str, dict[tuple[str, str, str], Value]] = {}
    for value in values:
        column = (value.name, value.unit, value.expected or "")
        columns[column] = None
        rows.setdefault(value.subject, {})[column] = value
    if not columns:
        return None
    subjects = sorted(rows, key=natural)
    return ValueTable(
        tuple(columns),
        tuple((each, tuple(rows[each].get(column) for column in columns)) for each in subjects),
    )


def _all_passed(step: StepRecord) -> bool:
    """Whether the step passed, and no finding of it is anything but PASS or SKIP."""
    return step.verdict is Verdict.PASS and all(
        found.verdict in (Verdict.PASS, Verdict.SKIP) for found in step.findings
    )


def _counts(record: RunRecord) -> str:
    found = [(verdict, sum(step.verdict is verdict for step in record.steps)) for verdict in WORST_FIRST]
    open_steps = sum(step.verdict is None for step in record.steps)
    told = [f"{count} {verdict}" for verdict, count in found if count]
    return ", ".join([*told, *([f"{open_steps} not run"] if open_steps else [])])


def _unplaced(record: RunRecord) -> list[str]:
    known = {step.id for step in record.steps}
    lost = sum(curve.step not in known for curve in record.curves)
    return [f"{lost} curves belong to no step that is shown; run.json has them"] if lost else []


def _word(verdict: Verdict | None) -> str:
    return "not run" if verdict is None else verdict.value


def _svg(figure: Figure) -> Markup:
    # Built as a tree of elements, whose writer has escaped every text in it.
    return Markup(figure.svg)  # noqa: S704


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agent.checklist", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    helpers: dict[str, Any] = {"utc": utc, "took": took, "number": number, "word": _word, "svg": _svg}
    environment.globals.update(helpers, quantity=quantity)
    return environment.get_template("report_page.html")
