"""The controller of one engine: recover, launch, watch, clean up, wait, and again.

Everything runs on one event loop. The gate asks (start_engine, stop_engine, reset_crashes) and hears of every
change through `on_status`, after the board has the new observation.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

from agent.errors import LaunchError, SourceError
from agent.launch.backoff import after_crash, wait_after
from agent.launch.choose_supervisor import make_supervisor
from agent.launch.crash_tail import OnCrash, crash_tail, ignore_crash
from agent.launch.engine_life import EngineLife
from agent.launch.engine_log import EngineLog
from agent.launch.engine_secrets import engine_secrets
from agent.launch.engine_state import EngineEvent, EventKind
from agent.launch.external_engine import watch_external
from agent.launch.launch_profile import LaunchPlan, build_plan
from agent.launch.recovery import find_earlier
from agent.launch.soak import Soaker
from agent.launch.soak_memory import SoakMemory
from agent.launch.status_book import OnMark, StatusBook
from agent.launch.supervisor import Supervisor
from agent.model import EnginePhase, EngineStatus
from agent.node_profile import Engine, Mode
from agent.profile_loader import LoadedProfile
from agent.sources import Sources
from agent.sources.engine import EngineBoard, something_listens


class EngineController:
    """Launches and watches one engine; in mode gate it only watches one that somebody else runs."""

    def __init__(
        self,
        name: str,
        profile: LoadedProfile,
        sources: Sources,
        *,
        board: EngineBoard,
        on_status: Callable[[EngineStatus], None],
        state_dir: Path,
        log_dir: Path,
        run_dir: Path | None = None,
        on_crash: OnCrash = ignore_crash,
        on_mark: OnMark | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        """Prepare; nothing is looked at before `run`. Without `run_dir` no unit of systemd is used."""
        self.name = name
        self._profile = profile
        self._sources = sources
        self._state_dir = state_dir
        external = profile.profile.mode is not Mode.MANAGE
        self._book = StatusBook(name, sources.clock, board, on_status, on_mark, looked=external)
        self._log = EngineLog(log_dir / f"engine-{name}.log")
        self._on_crash = on_crash
        self._supervisor: Supervisor = supervisor or make_supervisor(
            profile.profile,
            name,
            state_dir=state_dir,
            run_dir=run_dir,
            log=self._log,
            simulated=sources.simulated,
        )
        self._wake = asyncio.Event()
        self._canary_now = asyncio.Event()
        self._start_asked = False
        self._reset_asked = False
        self._failed_starts = 0
        self.recovered = False  # the engine of an earlier agent, if there is one, has been found
        self._life: EngineLife | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> EngineStatus:
        """The engine now."""
        return self._book.status

    @property
    def _engine(self) -> Engine:
        return self._profile.profile.engines[self.name]

    def start_engine(self) -> None:
        """Ask for a start; ignored unless the engine is absent or about to be."""
        if self._book.phase in (EnginePhase.ABSENT, EnginePhase.BACKOFF):
            self._start_asked = True
            self._wake.set()

    def stop_engine(self, grace_s: float = 0) -> None:
        """Ask for a stop: after `grace_s` SIGTERM, later SIGKILL. A wait for the next try ends too."""
        self._start_asked = False
        if self._life is not None:
            self._life.stop("stop was asked for", grace_s)
        elif self._book.phase is EnginePhase.BACKOFF:
            self._book.apply(EngineEvent(EventKind.STOP, "stop was asked for"))
        self._wake.set()

    def reset_crashes(self) -> None:
        """An operator's word: forget the crashes and allow starts again."""
        if self._book.phase is EnginePhase.UNKILLABLE:
            self._reset_asked = True  # its processes are looked at first
        else:
            self._book.apply(EngineEvent(EventKind.RESET, "crashes cleared by an operator"))
        self._wake.set()

    def head_is_up(self) -> None:
        """The head of the engine's group answers: a rank without HTTP counts as up."""
        if self._life is not None:
            self._life.head_up.set()

    def set_taking_traffic(self, taking: bool) -> None:
        """When traffic begins the next canary is sent at once, so that it rests on fresh proof."""
        if taking:
            self._canary_now.set()

    def replace_profile(self, profile: LoadedProfile) -> None:
        """Use another profile from the next launch on."""
        self._profile = profile

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of the engine's output."""
        return self._log.tail(lines)

    async def run(self) -> None:
        """Run until cancelled. The engine is then left as it is; `close` decides what becomes of it."""
        self._task = asyncio.current_task()
        if self._profile.profile.mode is not Mode.MANAGE:
            await watch_external(self._book, self._engine, self._canary_now)
            return
        await self._recover()
        self._book.publish()
        self.recovered = True
        while True:
            if self._life is not None and self._book.phase is not EnginePhase.UNKILLABLE:
                await self._life.watch(self._canary_now)
                await self._clean_up(self._life)
            elif self._book.phase is EnginePhase.ABSENT and self._start_asked:
                await self._launch()
            else:
                await self._wait()

    async def close(self, *, leave_running: bool) -> None:
        """End `run`, then leave the engine to a later agent or stop it; returns when that is done."""
        if self._task is not None and not self._task.done() and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait((self._task,))
        unseen = self._life is None and not self.recovered and self._profile.profile.mode is Mode.MANAGE
        if unseen and not leave_running:  # asked to stop before it had looked: an earlier engine ends too
            await self._recover()
        life = self._life
        if life is None or self._book.phase is EnginePhase.UNKILLABLE:
            return
        ending = self._book.phase in (EnginePhase.STOPPING, EnginePhase.EXITED)
        if leave_running and life.run is not None and not ending:
            self._supervisor.detach(life.run)
            return
        life.stop("the agent ends")
        await self._clean_up(life)

    async def _recover(self) -> None:
        """Take over the engine of an earlier agent, or end what is left of it: never two engines."""
        self._log.hide(await asyncio.to_thread(engine_secrets, self._engine))
        left, run, plan = await find_earlier(self._supervisor, self._book, self._build_plan)
        self._book.looked = True
        if left is None:
            return
        self._life = life = self._new_life()
        if run is not None and plan is not None:
            self._book.apply(EngineEvent(EventKind.ADOPT, f"adopted as pid {run.pid}", pid=run.pid))
            self._start_asked = False  # by a gate that did not know of it; it must not outlast it
            life.begin(run, plan)
            return
        life.run = left
        self._book.apply(EngineEvent(EventKind.LEFTOVER, "ending what is left of an earlier launch"))
        await self._clean_up(life)

    def _new_life(self) -> EngineLife:
        soaker = Soaker(self.name, self._profile.profile, self._sources, self._state_dir)
        warmed = SoakMemory(self._state_dir / f"engine-{self.name}.warmed")
        return EngineLife(self._book, self._supervisor, self._log, self._engine, soaker, warmed)

    async def _build_plan(self) -> LaunchPlan:
        """In a thread: NVML and the secrets file are read on the way."""
        return await asyncio.to_thread(
            build_plan, self._profile.profile, self.name, self._sources, os.environ
        )

    async def _launch(self) -> None:
        """Start the engine.

        What could not even be started (disk full, port taken, NVML silent) is tried again with growing waits
        for as long as it takes: no engine has crashed, so none is quarantined, and it heals by itself.
        """
        self._start_asked = False
        self._life = life = self._new_life()
        self._book.apply(EngineEvent(EventKind.START, "starting"))
        try:
            plan = await self._build_plan()
            if await something_listens(plan.host, plan.port):
                raise LaunchError(
                    f"something else listens at {plan.host} port {plan.port}; stop it or change the port"
                )
            run = await self._supervisor.start(plan)
        except (LaunchError, SourceError) as cause:
            life.fault(str(cause))
            self._not_started()
            return
        self._failed_starts = 0
        life.begin(run, plan)
        self._book.note(f"started as pid {run.pid}", pid=run.pid)

    async def _clean_up(self, life: EngineLife) -> None:
        """End every process; what cannot be ended needs a person."""
        pins = self._profile.profile.gpus.pins
        outcome = await life.clean_up(
            self._sources, tuple(pins[slot].uuid for slot in self._engine.gpus if slot in pins)
        )
        self._book.monitor = None
        if self._book.phase is EnginePhase.EXITED:  # now all of its last words are there
            self._on_crash(self.name, self._book.record.reason, crash_tail(self._log))
        if outcome.stuck:
            self._book.apply(EngineEvent(EventKind.SURVIVED, outcome.note))
        else:
            self._gone(outcome.note)

    def _gone(self, note: str = "") -> None:
        """Nothing is left of it: it is absent, or after a fault waits for its next try."""
        self._life = self._book.monitor = None
        why = f"{self._book.record.reason}; {note}" if note else self._book.record.reason
        if self._book.phase is EnginePhase.STOPPING:
            self._book.apply(EngineEvent(EventKind.GONE, f"stopped: {why}"))
            return
        policy = self._engine.backoff
        crashes = self._book.record.crashes_mono_s
        share = random.random()  # noqa: S311 (spreads restarts, guards nothing)
        restart = after_crash(policy, crashes, self._sources.clock.mono_s(), share)
        if restart.wait_s is None:
            why = f"{len(restart.crashes_mono_s)} crashes within {policy.window_s:g} s, the last: {why}"
        self._book.apply(EngineEvent(EventKind.GONE, why, None, restart.wait_s, restart.crashes_mono_s))

    def _not_started(self) -> None:
        """Nothing ran: absent if a stop was asked for meanwhile, else wait for the next try."""
        self._life = None
        record = self._book.record
        if record.phase is EnginePhase.STOPPING:
            self._book.apply(EngineEvent(EventKind.GONE, f"stopped: {record.reason}"))
            return
        self._failed_starts += 1
        share = random.random()  # noqa: S311 (spreads restarts, guards nothing)
        wait_s = wait_after(self._engine.backoff, self._failed_starts, share)
        self._book.apply(EngineEvent(EventKind.GONE, record.reason, None, wait_s, record.crashes_mono_s))

    async def _wait(self) -> None:
        """Until something is asked for or the wait after a crash is over."""
        retry_at = self._book.record.retry_at_mono_s
        left_s = None if retry_at is None else max(0.0, retry_at - self._sources.clock.mono_s())
        try:
            async with asyncio.timeout(left_s):
                await self._wake.wait()
        except TimeoutError:
            if self._book.phase is EnginePhase.BACKOFF:
                self._book.apply(EngineEvent(EventKind.RETRY))
        self._wake.clear()
        if self._reset_asked:
            self._reset_asked = False
            await self._reset_unkillable()

    async def _reset_unkillable(self) -> None:
        """Allowed only when the stuck processes are gone after all."""
        run = self._life.run if self._life is not None else None
        alive = await self._supervisor.processes(run) if run is not None else []
        if alive:
            self._book.note(f"still cannot be ended: {', '.join(str(stat.pid) for stat in alive)}; reboot")
            return
        self._life = None
        self._book.apply(EngineEvent(EventKind.RESET, "cleared by an operator, its processes are gone"))
