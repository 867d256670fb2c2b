"""Runs every check for ever, by period, deadline and trigger; a hung or broken one is UNKNOWN, never a crash.

Each check has an asyncio task; the check function itself runs in a thread that it has to itself
(check_threads.py), so one that hangs delays no other. Results go through hysteresis (check_track.py) into
one Snapshot, swapped whole and told together (teller.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from agent.check_plan import SKIPPED_SHARE, CheckPlan, beat_of, next_beat_s, plan_all
from agent.check_run import Outcome, no_answer, skipped, start
from agent.check_threads import CheckThreads, stack_of
from agent.check_track import CheckTrack, Moment, ResultChange
from agent.checks.registry import Check
from agent.lane import Lane
from agent.model import Result, ResultKey, Snapshot
from agent.sources import Sources
from agent.teller import Teller
from agent.track_memory import SubjectMemory

if TYPE_CHECKING:
    import threading

    from agent.profile_loader import LoadedProfile

__all__ = ["ResultChange", "Runner"]

log = logging.getLogger("nodegate.runner")

#: Events come in bursts (one kernel message for each of many links): wait this long for the rest of a burst.
COALESCE_S = 0.005
#: Two runs of one check start no closer together than this when a verdict is due.
MIN_GAP_S = 0.05
#: While no gate is open, what keeps them closed is looked at again after this time: a node that has been
#: repaired must not wait for the period of a slow check.
BLOCKED_PERIOD_S = 15.0

OnResults = Callable[[Snapshot, tuple[ResultChange, ...]], None]
#: Told of a check that broke or overran: its id, what happened, the traceback.
OnDefect = Callable[[str, str, str], None]


def _nobody(_check: str, _error: str, _trace: str) -> None:
    """Nobody keeps tracebacks."""


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
        memories: Mapping[ResultKey, SubjectMemory] | None = None,
        on_defect: OnDefect = _nobody,
        part_of: Callable[[str], str] = lambda _subject: "",
    ) -> None:
        """Prepare the checks. Raises ConfigError.

        `carried` and `memories` are of an earlier agent on this boot; `part_of` names a subject's part now.
        """
        self._sources = sources
        self._profile_hash = profile.hash
        self._on_results = on_results
        self._on_defect = on_defect
        self._node = node
        self._serving = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = CheckThreads()
        self._teller = Teller(self._tell)
        self._lanes = {
            id_: Lane(plan, CheckTrack(plan, profile.hash, part_of), beat_of(node, id_))
            for id_, plan in plan_all(checks, profile.profile).items()
        }
        now_mono_s = sources.clock.mono_s()
        known = memories or {}
        for result in carried:
            # Evidence from the future is of another boot, whatever it claims.
            if result.check in self._lanes and result.measured_mono_s <= now_mono_s:
                memory = known.get((result.check, result.subject))
                self._lanes[result.check].track.seed(result, memory, now_mono_s=now_mono_s)
        self._newest: Snapshot | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The newest results."""
        if self._newest is None:
            self._newest = self._snapshot()
        return self._newest

    @property
    def durations_s(self) -> dict[str, float]:
        """How long the last run of each check took, in seconds."""
        return {id_: lane.duration_s for id_, lane in self._lanes.items() if lane.duration_s is not None}

    def memories(self) -> dict[ResultKey, SubjectMemory]:
        """What a restarted agent must know beside the results."""
        return {
            (id_, subject): memory
            for id_, lane in self._lanes.items()
            for subject, memory in lane.track.memories.items()
        }

    async def run(self) -> None:
        """Run every check at once and then for ever, until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._teller.run(), name="teller")
                for lane in self._lanes.values():
                    group.create_task(self._follow(lane), name=f"check-{lane.plan.check.id}")
        finally:
            self._loop = None
            self._threads.close()

    def trigger(self, kind: str) -> None:
        """Run the checks with this trigger at once, or once more after a run under way. From any thread."""
        loop = self._loop
        if loop is None:
            return  # before the start: every check is about to run anyway
        # RuntimeError: the loop has just been closed, nothing is left to run.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ring, kind)

    def flush(self) -> bool:
        """Tell the readings that wait to be told together; whether there were any."""
        return self._teller.flush()

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
            changes += lane.track.profile_changed(plans[id_], self._moment(), profile.hash)
            lane.changed()
            lane.bell.set()
        self._note(tuple(changes))
        self.flush()

    def clear(self, check: str | None, subject: str | None) -> None:
        """Forget verdicts, sticky ones too, of one check or all, one subject or all; check them anew."""
        for id_, lane in self._lanes.items():
            if check is None or check == id_:
                for held in lane.track.forget(subject):
                    log.warning("check %s %s: no operator clears this, only a reset or a reboot", id_, held)
                lane.bell.set()

    def _ring(self, kind: str) -> None:
        for lane in self._lanes.values():
            if kind in lane.plan.check.triggers:
                lane.bell.set()

    async def _follow(self, lane: Lane) -> None:
        """One check's life."""
        triggered = False
        while True:
            lane.bell.clear()
            started_mono_s = self._sources.clock.mono_s()
            await self._once(lane, triggered)
            triggered = await self._rest(lane, started_mono_s)

    async def _once(self, lane: Lane, triggered: bool) -> None:
        """One run, and the wait for its thread if it does not answer in time."""
        plan = lane.plan
        if plan.skip_reason is not None:
            self._take(lane, skipped(plan), self._moment(), triggered)
            return
        at_mono_s = self._sources.clock.mono_s()
        answer, thread = self._start(plan)
        done, _ = await asyncio.wait({answer}, timeout=plan.deadline_s)
        if not done:
            await self._wait_out(lane, answer, thread)
            return
        if plan is not lane.plan:
            return  # judged by a profile that has been replaced meanwhile; the bell has been rung
        outcome = answer.result()
        lane.duration_s = outcome.duration_s
        self._log_error(lane, outcome)
        at = Moment(at_mono_s, self._sources.clock.wall_s(), self._serving)
        self._take(lane, outcome, at, triggered)

    def _start(self, plan: CheckPlan) -> tuple[asyncio.Future[Outcome], threading.Thread]:
        """Start the check in a thread; the future gets its outcome, if ever there is one."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()

        def deliver(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        def done(outcome: Outcome) -> None:
            # RuntimeError: the loop has been closed while the check ran, nobody waits for it any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(deliver, outcome)

        return answer, start(plan, self._sources, done, self._threads)

    async def _wait_out(self, lane: Lane, answer: asyncio.Future[Outcome], thread: threading.Thread) -> None:
        """The deadline has passed: UNKNOWN until the thread comes back; what it says then is dropped."""
        late = no_answer(lane.plan.deadline_s)
        if lane.logged != late:  # a check that is late each time is told once
            log.warning("check %s: %s", lane.plan.check.id, late)
            self._on_defect(lane.plan.check.id, late, stack_of(thread))
        lane.logged = late
        while True:
            plan = lane.plan
            lane.duration_s = plan.deadline_s
            if plan.skip_reason is not None:
                self._take(lane, skipped(plan), self._moment(), False)
            else:
                changes = lane.track.silence(no_answer(plan.deadline_s), self._moment())
                lane.changed()
                self._note(changes)
            done, _ = await asyncio.wait({answer}, timeout=self._delay_s(lane, plan.period_s))
            if done:
                return

    async def _rest(self, lane: Lane, started_mono_s: float) -> bool:
        """Wait for the next run; whether an event ended the wait."""
        due_mono_s = next_beat_s(lane.beat_s, lane.plan.period_s, started_mono_s)
        if lane.track.any_unknown and lane.plan.check.needs_interval_s > 0:
            # Most likely only a baseline has been taken: the second sample must not wait for a whole period.
            # Counted from now: when in the run the first one was taken is not known.
            due_mono_s = min(due_mono_s, self._sources.clock.mono_s() + lane.plan.check.needs_interval_s)
        if not self._serving and lane.blocks_admission:
            due_mono_s = min(due_mono_s, self._sources.clock.mono_s() + BLOCKED_PERIOD_S)
        # A clock that has been set back must not make it wait for longer.
        left_s = min(due_mono_s - self._sources.clock.mono_s(), (1 + SKIPPED_SHARE) * lane.plan.period_s)
        delay_s = self._delay_s(lane, max(MIN_GAP_S, left_s))
        try:
            async with asyncio.timeout(delay_s):  # wait_for of Python 3.11 loses a cancellation at times
                await lane.bell.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(COALESCE_S)
        return True

    def _delay_s(self, lane: Lane, at_most_s: float) -> float:
        """Seconds to the next reading: earlier than asked when one more would settle a verdict."""
        due_mono_s = lane.track.due_mono_s()
        if due_mono_s is None:
            return at_most_s
        return min(at_most_s, max(MIN_GAP_S, due_mono_s - self._sources.clock.mono_s()))

    def _take(self, lane: Lane, outcome: Outcome, at: Moment, triggered: bool) -> None:
        changes = lane.track.absorb(outcome, at, triggered=triggered)
        lane.changed()
        self._note(changes)

    def _log_error(self, lane: Lane, outcome: Outcome) -> None:
        """Say once what keeps a check from answering; the traceback of a defect goes to the journal."""
        if outcome.error is not None and outcome.error != lane.logged:
            log.warning("check %s: %s", lane.plan.check.id, outcome.error)
            if outcome.trace:
                self._on_defect(lane.plan.check.id, outcome.error, outcome.trace)
        lane.logged = outcome.error

    def _moment(self) -> Moment:
        clock = self._sources.clock
        return Moment(clock.mono_s(), clock.wall_s(), self._serving)

    def _note(self, changes: tuple[ResultChange, ...]) -> None:
        self._newest = None
        self._teller.note(changes)

    def _tell(self, changes: tuple[ResultChange, ...]) -> None:
        self._on_results(self.snapshot, changes)

    def _snapshot(self) -> Snapshot:
        clock = self._sources.clock
        results: dict[ResultKey, Result] = {}
        for lane in self._lanes.values():
            results.update(lane.results)
        return Snapshot(
            node=self._node,
            profile_hash=self._profile_hash,
            simulated=self._sources.simulated,
            boot_id=clock.boot_id(),
            mono_s=clock.mono_s(),
            wall_s=clock.wall_s(),
            results=results,
        )
