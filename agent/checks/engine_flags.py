"""engine.flags: does the engine that is installed take the flags and the environment of its launch?

The engine's argument definitions are read from its source, it is not started. A launch with an error is not
made, and `engine restart` is refused, so a working engine is not stopped for one that cannot start.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.launch_reports import judge_launches, judge_report, not_managed
from agent.checks.registry import Limits, check
from agent.model import Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.launch_reading import LaunchReport

_CORRECT = advice.person(
    "Correct engines.NAME.launch as the summary says; `nodegate launch lint ENGINE` lists all that is wrong."
)
_NAME = advice.person(
    "Name the engine's own script in engines.NAME.launch.command, e.g. /opt/vllm/bin/vllm, not a wrapper."
)


@check(
    "engine.flags",
    title="Engine takes its flags",
    source="argument definitions in the installed engine's source; nccl.conf",
    serving_class=ServingClass.SOFT,
    phases=(Phase.ADMISSION, Phase.MAINTENANCE),
    period_s=30.0,
    fail_for_s=30.0,
    deadline_s=10.0,
    skip=not_managed,
    action=_CORRECT,
    if_unreadable="Name the engine's program in engines.NAME.launch.command with its full path.",
)
def engine_flags(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No flag may be unknown, removed, ambiguous or contradicted by another."""

    def judge(subject: str, report: LaunchReport) -> Finding:
        basis = Basis.device("arguments of the installed engine")
        if not report.problems and not report.facts:  # a program that is no engine whose flags are known
            return Finding(
                subject, Verdict.WARN, report.summary, "not checked", "checked", "flags", _NAME, basis=basis
            )
        return judge_report(subject, report, basis, "problems", _CORRECT)

    yield from judge_launches(sources, profile, sources.launches.flags, judge)
