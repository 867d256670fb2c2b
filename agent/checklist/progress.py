"""What is told of a run while it goes on: the key `checklist` of /status."""

from __future__ import annotations

from typing import Any

from agent.checklist.model import GOOD
from agent.checklist.record import RunRecord
from agent.explain import utc


def progress_of(record: RunRecord) -> dict[str, Any]:
    """One run as /status has it; `step` is the one that is under way, comes next, or ended the run."""
    current = next((step for step in record.steps if step.verdict is None), None)
    if record.verdict is not None:
        current = next((step for step in reversed(record.steps) if step.verdict not in (None, *GOOD)), None)
    ended = record.ended_wall_s
    return {
        "name": record.checklist,
        "run_id": record.run_id,
        "verdict": None if record.verdict is None else record.verdict.value,
        "step": None if current is None else current.id,
        "step_title": None if current is None else current.title,
        "done": sum(step.verdict is not None for step in record.steps),
        "total": len(record.steps),
        "started": utc(record.started_wall_s),
        "ended": None if ended is None else utc(ended),
        "who": record.who,
    }
