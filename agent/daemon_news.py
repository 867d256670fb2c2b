"""What the daemon's log says of changed results. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from agent.check_track import ResultChange
from agent.log_events import Fields
from agent.model import Snapshot, Verdict, engine_of
from agent.rows import subjects


def as_shown(change: ResultChange, shown: Snapshot) -> ResultChange:
    """The change with the waiver that covers its result, which the runner does not know of."""
    seen = shown.results.get((change.after.check, change.after.subject))
    if seen is None or not seen.waived:
        return change
    return replace(change, after=replace(change.after, waived=True))


def news_of(changes: Iterable[ResultChange]) -> Iterator[tuple[int, str, list[Fields]]]:
    """Level and text of what is worth a line, and the fields of each subject that it is about.

    What is the same for several subjects is one line.
    """
    told: dict[tuple[str, Verdict, str], list[Fields]] = {}
    for change in filter(_is_news, changes):
        after = change.after
        old = None if change.before is None else change.before.verdict
        fields = {"check": after.check, "subject": after.subject, "old": old, "new": after.verdict}
        same = told.setdefault((after.check, after.verdict, after.finding.summary), [])
        same.append({**fields, "engine": engine_of(after.subject), "summary": after.finding.summary})
    for (check, verdict, summary), each in told.items():
        level = logging.WARNING if verdict is Verdict.FAIL else logging.INFO
        names = list(dict.fromkeys(str(fields["subject"]) for fields in each))
        yield level, f"{check} {subjects(names)}: {verdict}: {summary}", each


def _is_news(change: ResultChange) -> bool:
    """Whether a change is worth a line: not every first PASS of a hundred subjects at each start."""
    if change.before is None:
        return change.after.verdict not in (Verdict.PASS, Verdict.SKIP)
    return change.before.verdict is not change.after.verdict
