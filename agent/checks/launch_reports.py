"""A report on a launch that is not made yet (flags, memory, checkpoint) turned into a finding; shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.checks.registry import unknown
from agent.errors import SourceError
from agent.model import Action, Basis, Finding, Verdict
from agent.node_profile import Mode, NodeProfile
from agent.sources import Sources
from agent.sources.launch_reading import LaunchReport, NotLaunchedHere, Severity

#: A summary is one line of a table.
_LONGEST = 230


def not_managed(profile: NodeProfile) -> str | None:
    """Skip rule: nodegate launches no engine."""
    if profile.mode is not Mode.MANAGE:
        return f"mode is {profile.mode}: nodegate launches no engine"
    return None if profile.engines else "the profile has no engines"


def judge_launches(
    sources: Sources,
    profile: NodeProfile,
    look: Callable[[str], LaunchReport],
    judge: Callable[[str, LaunchReport], Finding],
) -> Iterator[Finding]:
    """Judge (subject, report) of every engine; a replayed node launches nothing, so there it is SKIP."""
    for name in profile.engines:
        subject = f"engine:{name}"
        try:
            yield judge(subject, look(name))
        except NotLaunchedHere as cause:
            if sources.simulated:
                yield Finding(subject, Verdict.SKIP, f"a replayed node: {cause}")
            else:
                yield unknown(subject, cause)
        except SourceError as cause:
            yield unknown(subject, cause)


def judge_report(subject: str, report: LaunchReport, basis: Basis, unit: str, action: Action) -> Finding:
    """Errors FAIL, warnings WARN, each named; else PASS with the report's own summary."""
    errors = [problem for problem in report.problems if problem.severity is Severity.ERROR]
    told = errors or list(report.problems)
    if not told:
        words = "; ".join(filter(None, (report.summary, report.pending)))
        return Finding(subject, Verdict.PASS, words[:_LONGEST], 0, 0, unit, basis=basis)
    more = f" and {len(told) - 1} more" if len(told) > 1 else ""
    words = str(told[0])[: _LONGEST - len(more)] + more
    verdict = Verdict.FAIL if errors else Verdict.WARN
    return Finding(subject, verdict, words, len(told), 0, unit, action, basis=basis)
