"""A load and all that looks on: one loop that ends with the load, with a fault, or when it is called off.

Every look runs in a thread that can be given up, so that a call which hangs in a driver neither hides a fault
nor keeps the operator's word waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.checklist.measure import MeasureContext
from agent.errors import SourceError
from agent.launch.soak_watch import HardwareWatch
from agent.launch.spare_thread import in_spare_thread
from agent.measure.reports import Reports, clipped
from agent.sources.workload import Workload

#: Seconds between two looks at GPUs, and at what the BMC tells.
LOOK_S, COOLING_LOOK_S = 1.0, 10.0
#: How often the loop turns: called off means gone within two seconds.
TURN_S = 0.2
#: A look may take this long; each reading has its own, shorter deadline.
LOOK_DEADLINE_S = 60.0
#: From the start of a worker to its first report: imports, and every GPU's first kernel.
START_S = 300.0
_TELL_S = 15.0
LATE = f"the hardware's readings gave no answer in {LOOK_DEADLINE_S:g} s"


@dataclass
class Look:
    """One thing that is looked at over and over, one look at a time."""

    watch: HardwareWatch
    every_s: float
    task: asyncio.Task[None] | None = None
    due_s: float = 0.0

    def turn(self, now_s: float, besides: Callable[[], None] | None = None) -> str:
        """Start a look that is due, collect one that is done; what hangs, in words, else empty."""
        if self.task is not None and self.task.done():
            fault, self.task = self.task.exception(), None
            if isinstance(fault, TimeoutError):
                return LATE
            if fault is not None:
                return f"looking at the hardware broke: {type(fault).__name__}: {fault}"
        if self.task is None and now_s >= self.due_s:
            self.due_s = now_s + self.every_s
            self.task = asyncio.create_task(in_spare_thread(lambda: self._look(besides), LOOK_DEADLINE_S))
        return ""

    def _look(self, besides: Callable[[], None] | None) -> None:
        self.watch.sample()
        if besides is not None:
            besides()

    async def last(self) -> None:
        """Wait for the look that is under way, then take the last one. TimeoutError: it hangs."""
        if self.task is not None:
            await self.task
        await in_spare_thread(lambda: self.watch.sample(last=True), LOOK_DEADLINE_S)

    async def first(self) -> None:
        """The look before the load: counters begin here. TimeoutError: it hangs."""
        await in_spare_thread(self.watch.sample, LOOK_DEADLINE_S)

    def drop(self) -> None:
        """Nobody waits for it any more."""
        if self.task is not None:
            self.task.cancel()


@dataclass
class Attendance:
    """What came of it. `problem`: why there is no measurement, empty where there is one."""

    reports: Reports = field(default_factory=Reports)
    problem: str = ""
    cancelled: bool = False
    #: How the worker ended by itself, None where it did not.
    status: int | None = None
    #: Seconds under load.
    seconds: float = 0.0


class Attendant:
    """Looks on until a load is over."""

    def __init__(
        self,
        context: MeasureContext,
        watch: HardwareWatch,
        *,
        cooling: HardwareWatch | None = None,
        hear: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """`hear` gets each report of the worker."""
        self._context = context
        self._clock = context.sources.clock
        self._looks = [Look(watch, LOOK_S)]
        self._watches = [watch]
        if cooling is not None and cooling.watched:
            self._looks.append(Look(cooling, COOLING_LOOK_S))
            self._watches.append(cooling)
        self._hear = hear
        self._told_s = self._clock.mono_s()

    async def begin(self) -> str:
        """Look once before there is a load; why that cannot be done, else empty."""
        try:
            for look in self._looks:
                await look.first()
        except TimeoutError:
            return LATE
        return ""

    def look_beside(self) -> None:
        """Let only the slow looks turn, beside somebody else's loop with the first one."""
        for look in self._looks[1:]:
            look.turn(self._clock.mono_s())

    def drop(self) -> None:
        """No look is waited for any more."""
        for look in self._looks:
            look.drop()

    async def attend(self, workload: Workload | None, duration_s: float | None) -> Attendance:
        """Until the worker is done, or for `duration_s` of load where it goes on; None: no worker, no end.

        The last look is taken while the load is still on.
        """
        found = Attendance()
        started_s = self._clock.mono_s()
        under_load_s: float | None = started_s if workload is None else None
        try:
            while True:
                now_s = self._clock.mono_s()
                if workload is not None and self._heard(workload, found) and under_load_s is None:
                    under_load_s = now_s
                found.seconds = 0.0 if under_load_s is None else now_s - under_load_s
                if self._over(found, workload, now_s - started_s, duration_s):
                    break
                await asyncio.sleep(TURN_S)
            if not found.cancelled and not found.problem:
                await self._last_looks(found)
        finally:
            self.drop()
        return found

    def _heard(self, workload: Workload, found: Attendance) -> bool:
        """Take what the worker has said; whether it has begun."""
        try:
            told = found.reports.take(workload.lines())
        except SourceError as cause:
            found.problem = str(cause)
            return False
        for report in told:
            if self._hear is not None:
                self._hear(report)
        return bool(told)

    def _over(
        self, found: Attendance, workload: Workload | None, since_s: float, duration_s: float | None
    ) -> bool:
        """Whether there is a reason to end it; what was wrong is noted."""
        now_s = self._clock.mono_s()
        if self._context.cancelled():
            found.cancelled = True
            return True
        if found.problem or any(watch.faults for watch in self._watches):
            return True
        if found.reports.error:
            found.problem = found.reports.error
            return True
        note = None if workload is None else workload.note
        for at, look in enumerate(self._looks):
            found.problem = found.problem or look.turn(now_s, note if at == 0 else None)
        if found.problem or found.reports.done is not None:
            return True
        if duration_s is not None and found.seconds >= duration_s:
            return True
        found.problem = self._silence(found, workload, since_s, duration_s, now_s)
        self._tell(found, duration_s, now_s)
        return bool(found.problem)

    def _silence(
        self,
        found: Attendance,
        workload: Workload | None,
        since_s: float,
        duration_s: float | None,
        now_s: float,
    ) -> str:
        """Why there will be no result, empty while there may be one."""
        if now_s >= self._context.until_mono_s:
            return f"not done when the step's time was over, {since_s:.0f} s after the start"
        if workload is None:
            return ""
        end = workload.ended()
        if end is not None:
            found.status = end.status
            found.reports.take(workload.lines())
            if found.reports.done is not None or found.reports.error:
                return found.reports.error
            last = clipped((end.errors.strip().splitlines() or [""])[-1]) or found.reports.noise
            return f"the worker ended with status {end.status} and no result{f': {last}' if last else ''}"
        if duration_s is not None and not found.seconds and since_s > START_S:
            return f"the worker has not begun within {START_S:g} s"
        return ""

    def _tell(self, found: Attendance, duration_s: float | None, now_s: float) -> None:
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            whole = f" of {duration_s:.0f}" if duration_s is not None else ""
            self._context.say(f"{found.seconds:.0f}{whole} s under load")

    async def _last_looks(self, found: Attendance) -> None:
        try:
            for look in self._looks:
                await look.last()
        except TimeoutError:
            found.problem = LATE
