"""What a result says about its own confirmation, and whether a change of it is news. Pure."""

from __future__ import annotations

from dataclasses import replace

from agent.check_plan import CheckPlan
from agent.checks.registry import ClearedBy
from agent.hysteresis import Confirmation
from agent.model import Finding, Result, Verdict

_NOTE = " (note: "


def explained(finding: Finding, state: Confirmation, plan: CheckPlan, *, drift: bool = False) -> Finding:
    """The finding, with a word on why verdict and last reading differ when they do."""
    if drift:
        note = "the profile has changed under a serving engine: it counts at the next launch"
    elif state.verdict is state.raw:
        return finding
    elif state.verdict is Verdict.FAIL:
        note = f"last reading {state.raw}, held {held_until(plan)}"
    elif state.raw is Verdict.FAIL:
        note = f"not confirmed before {plan.fail_for_s:g} s"
    else:
        note = f"{state.verdict} held for up to {plan.unknown_for_s:g} s"
    return replace(finding, summary=f"{finding.summary}{_NOTE}{note})")


def unexplained(finding: Finding) -> Finding:
    """The finding as the check made it."""
    return replace(finding, summary=finding.summary.partition(_NOTE)[0])


def held_until(plan: CheckPlan) -> str:
    """What ends a confirmed FAIL of this check."""
    check = plan.check
    if not check.sticky:
        return f"until {plan.clear_for_s:g} s of PASS"
    if ClearedBy.RESET in check.clears:
        return f"until {plan.clear_for_s:g} s of PASS after a reset"
    return "until cleared by an operator" if ClearedBy.OPERATOR in check.clears else "until a reboot"


def is_news(before: Result | None, after: Result, *, triggered: bool) -> bool:
    """Whether the journal should keep this; moving numbers are no news unless an event brought them."""
    if before is None:
        return True
    if (before.verdict, before.raw_verdict, before.serving_class) != (
        after.verdict,
        after.raw_verdict,
        after.serving_class,
    ):
        return True
    if before.finding.action != after.finding.action or before.times != after.times:
        return True
    bad = after.raw_verdict in (Verdict.FAIL, Verdict.WARN)
    return triggered and bad and before.finding.summary != after.finding.summary
