"""What the demo tells of changed results: one line for several subjects, a missing reason only once."""

from __future__ import annotations

from dataclasses import replace

from runner_kit import result

from agent.demo_story import changed_results
from agent.model import Result, Verdict

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


def _saying(summary: str, one: Result) -> Result:
    return replace(one, finding=replace(one.finding, summary=summary))


def test_subjects_with_the_same_change_share_a_line() -> None:
    before = {("c", f"gpu{n}"): result("c", f"gpu{n}", P) for n in range(4)}
    after = {key: _saying("same", result(*key, F)) for key in before}
    assert [row[:3] for row in changed_results(before, after)] == [("FAIL", "c", "gpu0-gpu3")]
    assert changed_results(after, after) == []


def test_what_is_seen_for_the_first_time_is_told_when_it_is_bad() -> None:
    after = {("c", "gpu0"): result("c", "gpu0", P), ("c", "gpu1"): result("c", "gpu1", U)}
    assert [row[:3] for row in changed_results({}, after)] == [("UNKNOWN", "c", "gpu1")]
