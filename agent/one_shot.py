"""One pass over the checks without a daemon: all at the same time, each with its deadline; no hysteresis."""

from __future__ import annotations

import difflib
import fnmatch
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent.check_plan import CheckPlan, plan_check
from agent.check_run import Outcome, no_answer, start, with_error
from agent.check_threads import CheckThreads
from agent.checks.registry import Check
from agent.effect import blocks_admission
from agent.errors import ConfigError
from agent.explain import Explainer
from agent.known_waivers import NO_WAIVERS, KnownWaivers
from agent.model import Finding, Phase, Result, Verdict, worst
from agent.parts import PartBook
from agent.pass_report import PassReport
from agent.rows import natural
from agent.sources import Sources

if TYPE_CHECKING:
    from agent.profile_loader import LoadedProfile

__all__ = ["PassReport", "run_pass", "select"]

#: These checks judge what the daemon sees of its engines over time, or what it has kept in its journal.
_OF_DAEMON = frozenset([
    "engine.health", "engine.cpu", "engine.latency", "engine.memory", "engine.numa", "engine.prefix_cache",
    "engine.pressure", "gpu.memory_growth", "history.repeat", "node.checklist",
])  # fmt: skip


def run_pass(
    sources: Sources,
    profile: LoadedProfile,
    checks: Mapping[str, Check],
    *,
    phase: Phase | None,
    only: str | None,
    node: str,
    sample_s: float | None = None,
    on_sampling: Callable[[float], None] | None = None,
    waivers: KnownWaivers = NO_WAIVERS,
    parts: Callable[[], PartBook] = PartBook,
    sleep: Callable[[float], None] = time.sleep,
) -> PassReport:
    """Run the checks of a phase (None: of all) whose id matches the glob `only`. Raises ConfigError.

    Checks that judge how counters grow are run twice, `sample_s` seconds apart (None: as long as they need);
    `on_sampling` is told of that wait. Results that a daemon's `waivers` cover do not count, as in its gates;
    `parts` tells which part each subject is. `sleep` waits between two samples.
    """
    began_s = time.monotonic()
    chosen = select(checks, phase, only)
    plans = [_without_daemon(plan_check(check, profile.profile)) for check in chosen]
    answers = _run_sampled(plans, sources, sample_s, on_sampling, sleep)
    duration_ms = (time.monotonic() - began_s) * 1000
    now_mono_s, now_wall_s = sources.clock.mono_s(), sources.clock.wall_s()
    known_parts = parts()
    results = [
        waivers.applied(_result(plan, finding, known_parts, now_mono_s, now_wall_s), plan.check)
        for plan in plans
        for finding in _findings(plan, answers[plan.check.id])
    ]
    results.sort(key=lambda result: (result.check, natural(result.subject)))
    return PassReport(
        node=node,
        simulated=sources.simulated,
        profile_hash=profile.hash,
        phase=phase,
        results=tuple(results),
        gating=frozenset((r.check, r.subject) for r in results if _gates(checks[r.check], r)),
        verdict=worst([Verdict.SKIP if r.shadow or r.waived else r.verdict for r in results]),
        duration_ms=duration_ms,
        explainer=Explainer(profile, checks),
        notes=(waivers.note,) if waivers.note else (),
    )


def select(checks: Mapping[str, Check], phase: Phase | None, only: str | None) -> list[Check]:
    """The checks of a phase whose id matches a glob. Raises ConfigError, with near ids, when none does."""
    in_phase = [check for check in checks.values() if phase is None or phase in check.phases]
    chosen = [check for check in in_phase if only is None or fnmatch.fnmatchcase(check.id, only)]
    if chosen:
        return sorted(chosen, key=lambda check: check.id)
    of_phase = f" in phase {phase}" if phase is not None else ""
    elsewhere = [check for check in checks.values() if only and fnmatch.fnmatchcase(check.id, only)]
    if elsewhere:
        phases = sorted({str(each) for check in elsewhere for each in check.phases})
        raise ConfigError(
            f"no check matches {only!r}{of_phase}", remedy=f"it does with --phase {' or '.join(phases)}"
        )
    near = difflib.get_close_matches(only or "", [check.id for check in in_phase], 3, 0.4)
    remedy = f"did you mean {', '.join(near)}?" if near else _all_ids(in_phase)
    raise ConfigError(f"no check matches {only!r}{of_phase}", remedy=remedy)


def _without_daemon(plan: CheckPlan) -> CheckPlan:
    """The plan; what only the daemon watches is left out, and says so."""
    if plan.skip_reason is None and plan.check.id in _OF_DAEMON:
        return replace(plan, skip_reason="needs the daemon: nodegate status")
    return plan


def _all_ids(checks: Sequence[Check]) -> str:
    return f"the checks are {', '.join(sorted(check.id for check in checks)) or 'none'}"


def _run_sampled(
    plans: Sequence[CheckPlan],
    sources: Sources,
    sample_s: float | None,
    on_sampling: Callable[[float], None] | None,
    sleep: Callable[[float], None],
) -> dict[str, Outcome | None]:
    """Run the plans, and once more those that have only taken a baseline."""
    answers = _run_together(plans, sources)
    again = [plan for plan in plans if _needs_second_sample(plan, answers[plan.check.id])]
    if again:
        wait_s = max(plan.check.needs_interval_s for plan in again) if sample_s is None else sample_s
        if on_sampling is not None:
            on_sampling(wait_s)
        sleep(wait_s)
        answers |= _run_together(again, sources)
    return answers


def _run_together(plans: Sequence[CheckPlan], sources: Sources) -> dict[str, Outcome | None]:
    """Run the plans at the same time; None for one that has not answered within its deadline."""
    answers: dict[str, Outcome | None] = {plan.check.id: None for plan in plans}
    running = [plan for plan in plans if plan.skip_reason is None]
    with closing(CheckThreads()) as threads:
        return _answers_of(running, sources, threads, answers)


def _answers_of(
    running: Sequence[CheckPlan], sources: Sources, threads: CheckThreads, answers: dict[str, Outcome | None]
) -> dict[str, Outcome | None]:
    """Fill in the answers that come in time."""
    inbox: queue.SimpleQueue[tuple[str, Outcome]] = queue.SimpleQueue()
    # Real time, not the sources' clock: it bounds a wait of this process.
    due_s: dict[str, float] = {}
    for plan in running:
        due_s[plan.check.id] = time.monotonic() + plan.deadline_s
        done = partial(_deliver, inbox, plan.check.id)
        start(plan, sources, done, threads)
    while due_s:
        left_s = min(due_s.values()) - time.monotonic()
        try:
            id_, outcome = inbox.get(timeout=max(0.0, left_s))
        except queue.Empty:
            now_s = time.monotonic()
            due_s = {id_: due for id_, due in due_s.items() if due > now_s}
            continue
        if due_s.pop(id_, None) is not None:
            answers[id_] = outcome
    return answers


def _deliver(inbox: queue.SimpleQueue[tuple[str, Outcome]], id_: str, outcome: Outcome) -> None:
    inbox.put((id_, outcome))


def _needs_second_sample(plan: CheckPlan, answer: Outcome | None) -> bool:
    """Whether the check judges growth and could not yet; one that hangs is not started on top of itself."""
    if answer is None or plan.check.needs_interval_s <= 0:
        return False
    return any(f.verdict is Verdict.UNKNOWN for f in with_error(answer, frozenset()))


def _findings(plan: CheckPlan, answer: Outcome | None) -> tuple[Finding, ...]:
    if plan.skip_reason is not None:
        return (Finding("node", Verdict.SKIP, plan.skip_reason),)
    if answer is None:
        return (Finding("node", Verdict.UNKNOWN, no_answer(plan.deadline_s)),)
    return with_error(answer, frozenset())


def _result(plan: CheckPlan, finding: Finding, parts: PartBook, mono_s: float, wall_s: float) -> Result:
    return Result(
        check=plan.check.id,
        finding=finding,
        verdict=finding.verdict,
        raw_verdict=finding.verdict,
        serving_class=finding.serving_class or plan.serving_class,
        measured_mono_s=mono_s,
        first_seen_s=wall_s,
        valid_for_s=plan.valid_for_s(serving=False),
        shadow=plan.shadow,
        times=int(finding.verdict is Verdict.FAIL),
        part=parts.part_of(finding.subject),
    )


def _gates(check: Check, result: Result) -> bool:
    """Whether the result would keep a gate from opening."""
    return blocks_admission(check, result, result.measured_mono_s, shadow=result.shadow)
