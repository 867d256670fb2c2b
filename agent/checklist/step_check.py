"""A step of kind `check`: the node's own checks, read anew by this command or by the daemon."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent.checklist.model import GOOD, CheckStep
from agent.checklist.record import StepFinding
from agent.checklist.steps import Ended, Surroundings
from agent.checks.registry import Check
from agent.errors import DaemonError
from agent.explain import plain
from agent.model import Phase, Result, Verdict, worst
from agent.one_shot import run_pass
from agent.rows import merge, subjects

#: Findings of one step that are kept; more of the same say nothing new.
MOST_FINDINGS = 512
POLL_S = 1.0
#: So many passes of a step are told one by one.
_FEW = 4


def run_check_step(step: CheckStep, given: Surroundings) -> Ended:
    """Run the checks that the step names, and judge the whole."""
    chosen = {
        id_: check
        for id_, check in given.checks.items()
        if any(fnmatch.fnmatchcase(id_, glob) for glob in step.check)
    }
    if step.via == "daemon" and given.daemon is not None:
        return _by_daemon(step, chosen, given)
    passed = {id_: check for id_, check in chosen.items() if Phase.MAINTENANCE in check.phases}
    if not passed:
        return Ended(Verdict.UNKNOWN, "only a daemon can see this, and there is none", hint=step.on_fail)
    began_s = given.now_s()
    report = run_pass(
        given.sources,
        given.loaded,
        passed,
        phase=Phase.MAINTENANCE,
        only=None,
        node=given.record.node,
        sleep=given.sleep,
    )
    findings = [
        (_counted(step, given.checks[result.check], result.verdict, waived=result.shadow), _finding(result))
        for result in report.results
    ]
    ended = _ended(step, findings)
    if given.now_s() - began_s > step.timeout_s and ended.verdict in GOOD:
        text = f"not done within {step.timeout_s:g} s: {ended.summary}"
        return replace(ended, verdict=Verdict.UNKNOWN, summary=text, hint=step.on_fail)
    return ended


def _finding(result: Result) -> StepFinding:
    found = result.finding
    return StepFinding(
        check=result.check,
        subject=result.subject,
        verdict=result.verdict,
        observed=_text(found.observed),
        expected=_text(found.expected),
        unit=found.unit,
        summary=found.summary,
        hint=found.action.hint,
    )


def _text(value: object) -> str:
    shown = plain(value) if isinstance(value, str | int | float | bool | None) else value
    return "" if shown is None else str(shown)


def _counted(step: CheckStep, check: Check, verdict: Verdict, *, waived: bool) -> Verdict:
    """The verdict as it counts here: what may be out of reach for good is told, not held against the node."""
    if waived:
        return Verdict.SKIP
    if verdict is Verdict.UNKNOWN and not check.unknown_blocks_admission and not step.needs_evidence:
        return Verdict.WARN
    return verdict


def _ended(step: CheckStep, findings: list[tuple[Verdict, StepFinding]]) -> Ended:
    verdict = worst([counted for counted, _ in findings])
    telling = [found for counted, found in findings if counted is verdict]
    shown = [found for counted, found in findings if counted is not Verdict.SKIP] or [f for _, f in findings]
    hints = [found.hint for found in telling if found.hint and verdict in (Verdict.FAIL, Verdict.UNKNOWN)]
    return Ended(
        verdict,
        _summary(verdict, telling, findings),
        findings=tuple(shown[:MOST_FINDINGS]),
        hint=" ".join(dict.fromkeys([step.on_fail, *hints]))[:500] if hints or _is_bad(verdict) else "",
    )


def _is_bad(verdict: Verdict) -> bool:
    return verdict in (Verdict.FAIL, Verdict.UNKNOWN)


def _summary(
    verdict: Verdict, telling: list[StepFinding], findings: Iterable[tuple[Verdict, StepFinding]]
) -> str:
    if verdict is Verdict.PASS and len(telling) > _FEW:
        counts = Counter(counted for counted, _ in findings)
        return ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    rows = merge([(found.check, found.subject, found.summary) for found in telling], 1, subjects)
    told = [f"{check} {subject}: {summary}" for check, subject, summary in rows]
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return f"{'; '.join(told[:3])}{more}"


def _by_daemon(step: CheckStep, chosen: Mapping[str, Check], given: Surroundings) -> Ended:
    """Wait until the daemon has read each of the checks since this step began."""
    assert given.daemon is not None
    began_s = given.now_s()
    late: list[str] = []
    while given.now_s() - began_s < step.timeout_s:
        given.refuse_if_cancelled()
        try:
            results = [r for r in given.daemon.status()["results"] if r["check"] in chosen]
        except DaemonError as cause:
            return Ended(Verdict.UNKNOWN, str(cause), hint=step.on_fail)
        late = _late(results, chosen, given.now_s() - began_s)
        if not late:
            return _ended(step, [_told(step, chosen, result) for result in results])
        given.sleep(POLL_S)
    text = f"the daemon has not read {', '.join(late[:5])} anew within {step.timeout_s:g} s"
    return Ended(Verdict.UNKNOWN, text, hint=step.on_fail)


def _late(results: list[dict[str, Any]], chosen: Mapping[str, Check], since_s: float) -> list[str]:
    """The checks of which there is no reading of since then; what is left out needs none."""
    old = {r["check"] for r in results if r["verdict"] != "SKIP" and (r["age_s"] >= since_s or r["carried"])}
    return sorted(old | (chosen.keys() - {r["check"] for r in results}))


def _told(
    step: CheckStep, chosen: Mapping[str, Check], result: Mapping[str, Any]
) -> tuple[Verdict, StepFinding]:
    # The last reading counts where it is worse: hysteresis protects serving engines, it proves nothing.
    verdict = worst([Verdict(result["verdict"]), Verdict(result["raw_verdict"])])
    found = StepFinding(
        check=result["check"],
        subject=result["subject"],
        verdict=verdict,
        observed=_text(result["observed"]),
        expected=_text(result["expected"]),
        unit=result["unit"],
        summary=result["summary"],
        hint=result["action"]["hint"],
    )
    waived = bool(result["waived"] or result["shadow"])
    return _counted(step, chosen[found.check], verdict, waived=waived), found
