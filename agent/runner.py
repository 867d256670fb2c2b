"""Runs every check for ever, by period, deadline and trigger; a hung or broken one is UNKNOWN, never a crash.

Each check has an asyncio task; the check function itself runs in a thread of its own (check_run.py), so one
that hangs delays no other. Results go through hysteresis (check_track.py) into one Snapshot, swapped whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from agent.check_plan import CheckPlan, plan_all
from agent.check_run import Outcome, no_answer, start
from agent.check_track import CheckTrack, Moment, ResultChange
from agent.checks.registry import Check
from agent.model import Finding, Result, Snapshot, Verdict
from agent.sources import Sources

if TYPE_CHECKING:
    from agent.profile_loader import LoadedProfile

__all__ = ["ResultChange", "Runner"]

log = logging.getLogger("nodegate.runner")

#: Events come in bursts (one kernel message for each of many links): wait this long for the rest of a burst.
COALESCE_S = 0.005
#: Two runs of one check start no closer together than this when a verdict is due.
MIN_GAP_S = 0.05
#: Runs start up to this share of the period early, so that checks spread out and none is ever late.
JITTER = 0.1

OnResults = Callable[[Snapshot, tuple[ResultChange, ...]], None]


class _Lane:
    """One check: its plan, its memory, and the bell that ends its rest."""

    def __init__(self, plan: CheckPlan) -> None:
        self.plan = plan
        self.track = CheckTrack(plan)
        self.bell = asyncio.Event()
        self.duration_s: float | None = None
        self.logged: str | None = None


class Runner:
    """Runs the checks of one node. All methods but `trigger` belong to the thread of the event loop."""

    def __init__(
        self,
        sources: Sources,
        profile: LoadedProfile,
        checks: Mapping[str, Check],
        *,
        on_results: OnResults,
        node: str,
        carried: Iterable[Result] = (),
        rng: random.Random | None = None,
    ) -> None:
        """Prepare the checks; `carried` are results of an earlier agent on this boot. Raises ConfigError."""
        self._sources = sources
        self._profile_hash = profile.hash
        self._on_results = on_results
        self._node = node
        self._rng = rng or random.Random()  # noqa: S311 (spreads load, guards nothing)
        self._serving = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lanes = {id_: _Lane(plan) for id_, plan in plan_all(checks, profile.profile).items()}
        now_mono_s = sources.clock.mono_s()
        for result in carried:
            # Evidence from the future is of another boot, whatever it claims.
            if result.check in self._lanes and result.measured_mono_s <= now_mono_s:
                self._lanes[result.check].track.seed(result)
        self.snapshot = self._snapshot()

    @property
    def durations_s(self) -> dict[str, float]:
        """How long the last run of each check took, in seconds."""
        return {id_: lane.duration_s for id_, lane in self._lanes.items() if lane.duration_s is not None}

    async def run(self) -> None:
        """Run every check at once and then for ever, until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes.values():
                    group.create_task(self._follow(lane), name=f"check-{lane.plan.check.id}")
        finally:
            self._loop = None

    def trigger(self, kind: str) -> None:
        """Run the checks with this trigger at once, or once more after a run under way. From any thread."""
        loop = self._loop
        if loop is None:
            return  # before the start: every check is about to run anyway
        # RuntimeError: the loop has just been closed, nothing is left to run.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ring, kind)

    def set_serving(self, serving: bool) -> None:
        """Say whether any gate serves: only then are failures confirmed over time and gaps bridged."""
        self._serving = serving

    def replace_profile(self, profile: LoadedProfile) -> None:
        """Judge by another profile and run everything again. Raises ConfigError and keeps the old one."""
        plans = plan_all({id_: lane.plan.check for id_, lane in self._lanes.items()}, profile.profile)
        self._profile_hash = profile.hash
        changes: list[ResultChange] = []
        for id_, lane in self._lanes.items():
            lane.plan = plans[id_]
            changes += lane.track.profile_changed(plans[id_], self._moment())
            lane.bell.set()
        self._publish(tuple(changes))

    def clear(self, check: str | None, subject: str | None) -> None:
        """Forget verdicts, sticky ones too, of one check or all, one subject or all; check them anew."""
        for id_, lane in self._lanes.items():
            if check is None or check == id_:
                lane.track.forget(subject)
                lane.bell.set()

    def _ring(self, kind: str) -> None:
        for lane in self._lanes.values():
            if kind in lane.plan.check.triggers:
                lane.bell.set()

    async def _follow(self, lane: _Lane) -> None:
        """One check's life."""
        triggered = False
        while True:
            lane.bell.clear()
            started_mono_s = self._sources.clock.mono_s()
            await self._once(lane, triggered)
            triggered = await self._rest(lane, started_mono_s)

    async def _once(self, lane: _Lane, triggered: bool) -> None:
        """One run, and the wait for its thread if it does not answer in time."""
        plan = lane.plan
        if plan.skip_reason is not None:
            self._take(lane, _skipped(plan), self._moment(), triggered)
            return
        at_mono_s = self._sources.clock.mono_s()
        answer = self._start(plan)
        done, _ = await asyncio.wait({answer}, timeout=plan.deadline_s)
        if not done:
            await self._wait_out(lane, answer)
            return
        if plan is not lane.plan:
            return  # judged by a profile that has been replaced meanwhile; the bell has been rung
        outcome = answer.result()
        lane.duration_s = outcome.duration_s
        self._log_error(lane, outcome)
        at = Moment(at_mono_s, self._sources.clock.wall_s(), self._serving)
        self._take(lane, outcome, at, triggered)

    def _start(self, plan: CheckPlan) -> asyncio.Future[Outcome]:
        """Start the check's thread; the future gets its outcome, if ever there is one."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()

        def deliver(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        def done(outcome: Outcome) -> None:
            # RuntimeError: the loop has been closed while the check ran, nobody waits for it any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(deliver, outcome)

        start(plan, self._sources, done)
        return answer

    async def _wait_out(self, lane: _Lane, answer: asyncio.Future[Outcome]) -> None:
        """The deadline has passed: UNKNOWN until the thread comes back; what it says then is dropped."""
        log.warning("check %s: %s", lane.plan.check.id, no_answer(lane.plan.deadline_s))
        while True:
            plan = lane.plan
            lane.duration_s = plan.deadline_s
            if plan.skip_reason is not None:
                self._take(lane, _skipped(plan), self._moment(), False)
            else:
                self._publish(lane.track.silence(no_answer(plan.deadline_s), self._moment()))
            done, _ = await asyncio.wait({answer}, timeout=self._delay_s(lane, plan.period_s))
            if done:
                return

    async def _rest(self, lane: _Lane, started_mono_s: float) -> bool:
        """Wait for the next run; whether an event ended the wait."""
        period_s = lane.plan.period_s * (1 - JITTER * self._rng.random())
        if lane.track.any_unknown and lane.plan.check.needs_interval_s > 0:
            # Most likely only a baseline has been taken: the second sample must not wait for a whole period.
            period_s = min(period_s, lane.plan.check.needs_interval_s)
        elapsed_s = self._sources.clock.mono_s() - started_mono_s
        delay_s = self._delay_s(lane, max(MIN_GAP_S, period_s - max(0.0, elapsed_s)))
        try:
            await asyncio.wait_for(lane.bell.wait(), timeout=delay_s)
        except TimeoutError:
            return False
        await asyncio.sleep(COALESCE_S)
        return True

    def _delay_s(self, lane: _Lane, at_most_s: float) -> float:
        """Seconds to the next reading: earlier than asked when one more would settle a verdict."""
        due_mono_s = lane.track.due_mono_s()
        if due_mono_s is None:
            return at_most_s
        return min(at_most_s, max(MIN_GAP_S, due_mono_s - self._sources.clock.mono_s()))

    def _take(self, lane: _Lane, outcome: Outcome, at: Moment, triggered: bool) -> None:
        self._publish(lane.track.absorb(outcome, at, triggered=triggered))

    def _log_error(self, lane: _Lane, outcome: Outcome) -> None:
        """Say once what keeps a check from answering; its traceback is for developers."""
        if outcome.error is not None and outcome.error != lane.logged:
            log.warning("check %s: %s", lane.plan.check.id, outcome.error)
            if outcome.trace:
                log.debug("check %s:\n%s", lane.plan.check.id, outcome.trace)
        lane.logged = outcome.error

    def _moment(self) -> Moment:
        clock = self._sources.clock
        return Moment(clock.mono_s(), clock.wall_s(), self._serving)

    def _publish(self, changes: tuple[ResultChange, ...]) -> None:
        self.snapshot = self._snapshot()
        self._on_results(self.snapshot, changes)

    def _snapshot(self) -> Snapshot:
        clock = self._sources.clock
        return Snapshot(
            node=self._node,
            profile_hash=self._profile_hash,
            simulated=self._sources.simulated,
            boot_id=clock.boot_id(),
            mono_s=clock.mono_s(),
            wall_s=clock.wall_s(),
            results={(r.check, r.subject): r for lane in self._lanes.values() for r in lane.track.results},
        )


def _skipped(plan: CheckPlan) -> Outcome:
    """The outcome of a check that the profile leaves out."""
    return Outcome((Finding("node", Verdict.SKIP, plan.skip_reason or ""),))
