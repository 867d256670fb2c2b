"""One life of an engine: the process, how long it is watched, what ends it, and the cleaning up behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from agent.errors import LaunchError
from agent.launch.clean_up import CleanUp, LifeEnd, clean_up
from agent.launch.death_rule import core_of, fault_of_death
from agent.launch.engine_log import EngineLog
from agent.launch.engine_monitor import EngineMonitor
from agent.launch.engine_state import EngineEvent, EventKind
from agent.launch.engine_watch import LifeHooks, healthy_by, live
from agent.launch.headless import HeadlessMonitor, live_headless
from agent.launch.launch_profile import LaunchPlan
from agent.launch.shared_memory import SharedMemory
from agent.launch.soak import Soaker
from agent.launch.soak_memory import SoakMemory
from agent.launch.spare_thread import in_spare_thread
from agent.launch.status_book import StatusBook
from agent.launch.supervisor import EngineRun, Supervisor
from agent.model import EnginePhase
from agent.node_profile import Engine
from agent.sources import Sources
from agent.sources.engine import EngineClient
from agent.sources.processes import ProcessStat

logger = logging.getLogger("nodegate.launch")

#: vLLM neither exits nor goes on when it gets SIGTERM while it starts: no use in waiting long.
STARTUP_TERM_S = 2.0
#: How long a disk may take to keep one line.
_KEEP_S = 5.0


class EngineLife:
    """From the decision to start (or the find of an earlier engine) to the proof that nothing is left."""

    def __init__(
        self,
        book: StatusBook,
        supervisor: Supervisor,
        log: EngineLog,
        engine: Engine,
        soaker: Soaker | None = None,
        warmed: SoakMemory | None = None,
    ) -> None:
        """Begin before anything runs, so that a stop that is asked for meanwhile is not lost."""
        self._book = book
        self._supervisor = supervisor
        self._log = log
        self._engine = engine
        self._soaker = soaker
        self._warmed = warmed
        self._end: asyncio.Future[LifeEnd] = asyncio.get_running_loop().create_future()
        self._broken = asyncio.Event()
        #: Of a rank without HTTP: the head of its group answers.
        self.head_up = asyncio.Event()
        self._core: frozenset[tuple[int, int]] = frozenset()
        self._shm = SharedMemory()
        self.plan: LaunchPlan | None = None
        self.run: EngineRun | None = None

    def begin(self, run: EngineRun, plan: LaunchPlan) -> None:
        """It runs: hear of every process of it that ends."""
        self.run, self.plan = run, plan
        try:
            self._supervisor.follow(run, self._died)
        except OSError as cause:  # out of descriptors: an engine that cannot be watched must not run
            self.fault(f"its processes cannot be watched: {cause.strerror}")

    def term_s(self) -> float:
        """How long SIGTERM may take in this phase."""
        whole_s = self._engine.stop_deadline_s
        return (
            whole_s
            if self._book.phase in (EnginePhase.UP, EnginePhase.WARM)
            else min(STARTUP_TERM_S, whole_s)
        )

    def stop(self, reason: str, grace_s: float = 0.0) -> None:
        """End it as asked. After a fault this only keeps the engine from coming back."""
        self._finish(LifeEnd(self.term_s(), grace_s), EventKind.STOP, reason)

    def fault(self, reason: str) -> None:
        """End it because of a fault: all of it is killed at once."""
        self._finish(LifeEnd(term_s=0), EventKind.FAULT, reason)

    def _finish(self, end: LifeEnd, kind: EventKind, reason: str) -> None:
        """The first word decides how it ends."""
        if not self._book.allows(kind):
            return
        if not self._end.done():
            self._end.set_result(end)
        self._book.apply(EngineEvent(kind, reason))

    def _died(self, stat: ProcessStat) -> None:
        """A process of the engine ended (called by its pidfd, at once)."""
        if self.run is None:
            return
        latest = self.run.tree.members.get(stat.key, stat)  # it may have renamed itself since it was found
        fault = fault_of_death(latest, self.run.tree.root, self._core)
        if fault is None:
            return
        self._broken.set()
        words = self._log.last_words() if self._book.phase is EnginePhase.STARTING else ""
        self.fault(f"{fault}: {words}" if words else fault)

    async def _whole(self) -> None:
        """It has passed its warm-up: from now on the end of any of these processes is a fault."""
        if self.run is not None:
            alive = await self._supervisor.processes(self.run)
            self._core = core_of(alive)
            await self._shm.note(alive)
            await self._remember_warm(self.run)

    async def _remember_warm(self, run: EngineRun) -> None:
        """A restarted agent asks a warm engine for little; one that it finds in its warm-up for all of it."""
        memory = self._warmed
        if memory is None:
            return
        try:
            await in_spare_thread(lambda: memory.remember(self._key(run)), _KEEP_S)
        except TimeoutError:
            logger.warning("that the engine is warm could not be kept in %g s", _KEEP_S)

    def _is_warm(self, run: EngineRun) -> bool:
        """Whether an earlier agent has seen this very run through its warm-up."""
        return run.adopted and (self._warmed is None or self._warmed.passed(self._key(run)))

    def _key(self, run: EngineRun) -> str:
        """What no other run of any engine is."""
        return f"{self._book.clock.boot_id()} {run.pid} {run.started_mono_s}"

    async def _soak(self, monitor: EngineMonitor) -> None:
        """Load it before it may take traffic, unless this very run has passed that before."""
        if self.run is not None and self._soaker is not None:
            await self._soaker.until_passed(self._key(self.run), monitor, self._book)

    def _pids(self) -> tuple[int, ...]:
        """The processes found at the last look, the one that was started first."""
        if self.run is None:
            return ()
        tree = self.run.tree
        living = {stat.pid for stat in tree.members.values() if not stat.dead}
        first = (tree.root[0],) if tree.root[0] in living else ()
        return (*first, *sorted(living - set(first)))

    async def watch(self, canary_now: asyncio.Event) -> None:
        """Watch it until something ends it; returns then. LaunchError when it never began."""
        if self.run is None or self.plan is None:
            raise LaunchError("there is no engine to watch")
        hooks = LifeHooks(on_whole=self._whole, on_fault=self.fault, soak=self._soak)
        now_s, run = self._book.clock.mono_s(), self.run
        by = healthy_by(self._engine, run.started_mono_s, now_s, adopted=run.adopted)
        if self._engine.follows:
            self._book.monitor = HeadlessMonitor(self._pids)
            await self._until_end(live_headless(self._book, self.head_up, hooks, by))
            return
        client = EngineClient(self.plan.host, self.plan.port, api_key=self.plan.api_key)
        monitor = EngineMonitor(self._engine, client, self._book.clock, self.plan.model_name)
        monitor.pids = self._pids
        self._book.monitor = monitor
        living = live(
            self._book,
            self._engine,
            monitor,
            hooks,
            canary_now,
            by=by,
            short_warm_up=self._is_warm(self.run),
        )
        try:
            await self._until_end(living)
        finally:
            await client.close()

    def _left_s(self) -> float | None:
        """How long it may still run; None = for ever."""
        if self.run is None or self.plan is None or self.plan.max_run_s is None:
            return None
        return max(0.0, self.run.started_mono_s + self.plan.max_run_s - self._book.clock.mono_s())

    async def _until_end(self, living: Coroutine[Any, Any, None]) -> None:
        """Let it live until something ends it."""
        watching = asyncio.ensure_future(living)
        try:
            ended, _ = await asyncio.wait(
                (watching, self._end), timeout=self._left_s(), return_when=asyncio.FIRST_COMPLETED
            )
            if not ended and self.plan is not None:
                reason = f"its time is over (max_run_s = {self.plan.max_run_s:g} s)"
                self.stop(reason, self._engine.gate.drain_grace_s)
            elif not self._end.done():
                # a defect of nodegate itself: an engine that nobody watches must not serve
                logger.error("watching the engine failed", exc_info=watching.exception())
                self.fault(f"watching it failed: {watching.exception()}")
        finally:
            watching.cancel()
            await asyncio.wait((watching,))

    async def clean_up(self, sources: Sources, pinned: tuple[str, ...]) -> CleanUp:
        """End every process and prove that the GPUs are free (`pinned`.

        Those of a launch not known any more).
        """
        if self.run is None:
            return CleanUp()
        end = self._end.result() if self._end.done() else LifeEnd(self.term_s())
        uuids = self.plan.gpu_uuids if self.plan is not None else pinned
        await self._shm.note(await self._supervisor.processes(self.run))
        outcome = await clean_up(self._supervisor, self.run, end, sources, uuids, self._broken)
        if not outcome.stuck:
            await self._shm.remove(self._book.clock, self.run.started_mono_s)
        return outcome
