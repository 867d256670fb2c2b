"""Starting, watching, adopting and ending an engine as a process group of the agent.

`ProcessGroupSupervisor` needs no systemd: the engine gets a session of its own and the agent is made the
reaper of orphans (reaper.py), so that workers which outlive their API server come to it instead of to init.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets as random_tokens
import signal
import subprocess
from pathlib import Path

from agent.errors import LaunchError
from agent.launch.death_watch import DeathWatch, send
from agent.launch.engine_log import EngineLog
from agent.launch.engine_run import Child, EngineRun, OnDeath, Supervisor, end_watch, engine_mark
from agent.launch.launch_profile import MARKER, LaunchPlan
from agent.launch.process_tree import ProcessTree
from agent.launch.reaper import become_reaper, reap
from agent.launch.run_record import RunFile, RunRecord
from agent.launch.spare_thread import in_spare_thread
from agent.launch.strays import StrayFinder
from agent.sources.clock import LiveClock
from agent.sources.processes import ProcessStat, ended, marked, process, processes

__all__ = ["EngineRun", "OnDeath", "ProcessGroupSupervisor", "Supervisor"]

logger = logging.getLogger("nodegate.launch")

#: New processes of an engine are looked for this often: it spawns them while it starts.
SCAN_PERIOD_S = 1.0
#: A process that is still there this long after SIGKILL is stuck in the kernel.
KILL_DEADLINE_S = 30.0
#: Looks at /proc are made in a thread that is given up after this time.
LOOK_DEADLINE_S = 5.0
_POLL_S = 0.05

#: Children left running on purpose: a Popen that is collected while its process lives warns.
_left_running: list[Child] = []


class ProcessGroupSupervisor:
    """The supervisor without systemd; one for each engine."""

    def __init__(self, engine: str, *, state_dir: Path, log: EngineLog) -> None:
        """Prepare; nothing is looked at or started yet."""
        self._engine = engine
        self._log = log
        # The processes are this machine's even when the node is a replayed one.
        self._clock = LiveClock()
        self._file = RunFile(state_dir / f"engine-{engine}.json")
        self._mark = engine_mark(engine, state_dir)
        self._strays = StrayFinder(f"{MARKER}={self._mark}", LOOK_DEADLINE_S)

    async def start(self, plan: LaunchPlan) -> EngineRun:
        """Start the engine in a session of its own."""
        become_reaper()
        token = random_tokens.token_hex(8)
        started = self._clock.mono_s()
        record = RunRecord(
            engine=self._engine,
            boot_id=self._clock.boot_id(),
            token=token,
            launch_hash=plan.launch_hash(),
            started_mono_s=started,
        )
        self._file.save(record)  # before the start: an agent killed in between finds the engine by its mark
        self._log.hide(plan.hidden)
        child = await self._spawned(plan, {**plan.process_env(), MARKER: self._mark + token})
        root = process(child.pid)
        if root is None:  # only a reaped child has no entry, and nothing has reaped it yet
            raise LaunchError(f"engine {self._engine}: process {child.pid} vanished at its start")
        record = record.model_copy(update={"pid": root.pid, "start_ticks": root.start_ticks})
        run = EngineRun(root.pid, started, ProcessTree(root.key), record=record, child=child)
        run.tree.update([root])
        try:
            self._file.save(record)
        except LaunchError:
            await self.stop(run, 0)
            raise
        return run

    async def _spawned(self, plan: LaunchPlan, env: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start the process in a thread: exec from a file system that hangs must not stop the agent."""
        starting = asyncio.ensure_future(asyncio.to_thread(self._spawn, plan, env))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            child = await starting
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise

    def _spawn(self, plan: LaunchPlan, env: dict[str, str]) -> subprocess.Popen[bytes]:
        try:
            output = self._log.open()
        except OSError as cause:
            raise LaunchError(
                f"engine {self._engine}: its log {self._log.path} cannot be written: {cause.strerror}; "
                "free space or set another --log-dir"
            ) from cause
        try:
            return subprocess.Popen(
                plan.argv,
                env=env,
                cwd=plan.working_dir,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as cause:
            what = plan.working_dir if cause.filename == plan.working_dir else plan.argv[0]
            raise LaunchError(
                f"engine {self._engine}: {what} cannot be started: {cause.strerror}; "
                "check launch.command, launch.working_dir and PATH"
            ) from cause
        finally:
            os.close(output)

    async def adopt(self, plan: LaunchPlan | None) -> EngineRun | None:
        """Take over the recorded engine if its root lives and it was started as `plan` would start it."""
        record = self._file.load()
        if record is None or plan is None or record.pid is None or record.boot_id != self._clock.boot_id():
            return None
        root = process(record.pid)
        if root is None or root.dead or root.start_ticks != record.start_ticks:
            return None
        if record.stopping or record.launch_hash != plan.launch_hash():
            return None
        become_reaper()
        self._log.hide(plan.hidden)
        tree = ProcessTree(root.key, known=record.members)
        tree.update([root])
        return EngineRun(root.pid, record.started_mono_s, tree, adopted=True, record=record)

    async def leftovers(self) -> EngineRun | None:
        """Processes of earlier launches: those on record and all that carry this agent's mark."""
        record = self._file.load()
        found: list[ProcessStat] = []
        try:
            found = await in_spare_thread(lambda: marked(f"{MARKER}={self._mark}"), LOOK_DEADLINE_S)
        except TimeoutError:  # a process of anybody that is stuck in the kernel; the record still counts
            logger.warning("engine %s: the marks of processes could not be read in time", self._engine)
        same_boot = record is not None and record.boot_id == self._clock.boot_id()
        known = list(record.members) if record is not None and same_boot else []
        if record is not None and same_boot and record.pid is not None and record.start_ticks is not None:
            known.append((record.pid, record.start_ticks))
        known += [stat.key for stat in found]
        if not known:
            return None
        tree = ProcessTree(known[-1], known=known, root_session=False)
        alive = tree.update(await _table())
        return EngineRun(known[-1][0], self._clock.mono_s(), tree) if alive else None

    async def processes(self, run: EngineRun) -> list[ProcessStat]:
        """Its living processes; ended ones are reaped, but not before the tree has seen their session."""
        try:
            table = await _table()
            run.tree.remember(await self._strays.find(table, run.tree.known))
            alive = run.tree.update(table)
        except TimeoutError:  # too loaded a machine: what was alive at the last look still counts as alive
            return [stat for stat in run.tree.members.values() if not stat.dead]
        for stat in run.tree.members.values():
            if stat.dead and stat.ppid == os.getpid() and (run.child is None or stat.pid != run.child.pid):
                reap(stat.pid)
        if run.child is not None:
            run.child.poll()
        if run.watch is not None:
            for stat in alive:
                run.watch.watch(stat)
        return alive

    def follow(self, run: EngineRun, on_death: OnDeath) -> None:
        """Watch its first process at once, and the others as soon as they are found."""
        run.watch = DeathWatch(on_death)
        root = process(run.pid)
        if root is None or root.key != run.tree.root:
            root = ended(run.tree.root)
        run.watch.watch(root)
        run.scanner = asyncio.get_running_loop().create_task(self._scan(run))

    async def _look(self, run: EngineRun) -> None:
        """One look, kept on record for a later agent."""
        await self.processes(run)
        members = tuple(sorted(run.tree.members))
        if run.record is not None and members != run.record.members:
            run.record = run.record.model_copy(update={"members": members})
            self._file.save(run.record)

    async def _scan(self, run: EngineRun) -> None:
        while True:
            try:
                await self._look(run)
                await in_spare_thread(self._log.bound, LOOK_DEADLINE_S)
            # Out of descriptors, disk full, a look too slow: the next turn may do better.
            except (OSError, LaunchError) as cause:
                logger.warning("engine %s: cannot look at its processes: %s", self._engine, cause)
            await asyncio.sleep(SCAN_PERIOD_S)

    async def stop(self, run: EngineRun, term_s: float) -> tuple[ProcessStat, ...]:
        """End all of it. Only the root gets SIGTERM: vLLM ends its own processes in order."""
        end_watch(run)
        self._file.mark_stopping(run.record)
        alive = await self.processes(run)
        if term_s > 0 and alive:
            roots = [stat for stat in alive if stat.key == run.tree.root] or alive
            for stat in roots:
                send(stat, signal.SIGTERM)
            alive = await self._wait_gone(run, term_s, kill=False)
        if alive:
            alive = await self._wait_gone(run, KILL_DEADLINE_S, kill=True)
        if not alive:
            self._file.remove()
        return tuple(alive)

    async def _wait_gone(self, run: EngineRun, deadline_s: float, *, kill: bool) -> list[ProcessStat]:
        """Wait until two looks in a row find nothing (a look can miss what is forked during it)."""
        until = self._clock.mono_s() + deadline_s
        empty = 0
        while True:
            alive = await self.processes(run)
            if kill:
                for stat in alive:
                    send(stat, signal.SIGKILL)
            empty = 0 if alive else empty + 1
            if empty >= 2 or self._clock.mono_s() >= until:
                return alive
            await asyncio.sleep(_POLL_S)

    def detach(self, run: EngineRun) -> None:
        """Leave it running for a later agent to adopt."""
        end_watch(run)
        if run.child is not None:
            _left_running.append(run.child)


async def _table() -> list[ProcessStat]:
    """All processes of the machine. In a thread, for there are thousands on a big one."""
    return await in_spare_thread(lambda: list(processes()), LOOK_DEADLINE_S)
