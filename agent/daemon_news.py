"""What the daemon's log says of changed results. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from agent.check_track import ResultChange
from agent.model import Snapshot, Verdict
from agent.rows import merge, subjects


def as_shown(change: ResultChange, shown: Snapshot) -> ResultChange:
    """The change with the waiver that covers its result, which the runner does not know of."""
    seen = shown.results.get((change.after.check, change.after.subject))
    if seen is None or not seen.waived:
        return change
    return replace(change, after=replace(change.after, waived=True))


def news_of(changes: Iterable[ResultChange]) -> Iterator[tuple[int, str]]:
    """Level and text of what is worth a line; what is the same for several subjects is one line."""
    news = [
        (after.check, after.subject, after.verdict, after.finding.summary)
        for after in (change.after for change in changes if _is_news(change))
    ]
    for check, subject, verdict, summary in merge(news, 1, subjects):
        level = logging.WARNING if verdict is Verdict.FAIL else logging.INFO
        yield level, f"{check} {subject}: {verdict}: {summary}"


def _is_news(change: ResultChange) -> bool:
    """Whether a change is worth a line: not every first PASS of a hundred subjects at each start."""
    if change.before is None:
        return change.after.verdict not in (Verdict.PASS, Verdict.SKIP)
    return change.before.verdict is not change.after.verdict
