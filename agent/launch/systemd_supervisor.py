"""An engine as the unit nodegate-engine@NAME.service: systemd holds it, the agent starts, watches, ends it.

The unit has a control group of its own, so nothing that the engine starts gets away, and it goes on when the
agent is killed. A successor takes it over by a look-up: the run of the unit (its invocation id) is the one
on record or on the starter's receipt, and its launch is the one that would be started now.
"""

from __future__ import annotations

import asyncio
import logging
import secrets as random_tokens
import signal
from collections.abc import Callable
from pathlib import Path

from agent.errors import LaunchError, SourceError
from agent.launch.death_watch import DeathWatch, send
from agent.launch.engine_log import EngineLog
from agent.launch.engine_run import EngineRun, OnDeath, end_watch, engine_mark
from agent.launch.launch_profile import MARKER, LaunchPlan
from agent.launch.process_tree import Key, ProcessTree
from agent.launch.run_record import RunFile, RunRecord
from agent.launch.spare_thread import in_spare_thread
from agent.launch.unit_end import UnitEnd
from agent.launch.unit_plan import Receipt, UnitPlanFile, unit_plan
from agent.launch.unit_proof import group_table, marked_keys, proof, unit_name
from agent.sources.cgroup import CGROUP, group_folder
from agent.sources.clock import LiveClock
from agent.sources.processes import ProcessStat, ended, process
from agent.sources.systemd import START_DEADLINE_S, Systemd, UnitNow

logger = logging.getLogger("nodegate.launch")

SCAN_PERIOD_S = 1.0
KILL_DEADLINE_S = 30.0  # as in supervisor.py
#: From the start of the unit's program until it leaves its receipt.
RECEIPT_DEADLINE_S = 30.0
LOOK_DEADLINE_S = 5.0
#: A thread is given up this much later than the command that it waits for.
_SLACK_S = 2.0
_POLL_S = 0.05


class SystemdSupervisor:
    """The supervisor through systemd; one for each engine."""

    def __init__(
        self,
        engine: str,
        *,
        systemd: Systemd,
        state_dir: Path,
        run_dir: Path,
        log: EngineLog,
        groups: Path = CGROUP,
        look: Callable[[int], ProcessStat | None] = process,
    ) -> None:
        """Prepare; nothing is looked at or started yet."""
        self.unit = unit_name(engine)
        self._engine = engine
        self._systemd = systemd
        self._log = log
        self._groups = groups
        self._look = look
        self._clock = LiveClock()
        self._file = RunFile(state_dir / f"engine-{engine}.json")
        self._plan_file = UnitPlanFile(run_dir, engine)
        self._mark = engine_mark(engine, state_dir)
        self._end = UnitEnd(systemd, self.unit)

    async def start(self, plan: LaunchPlan) -> EngineRun:
        """Write the plan and start the unit; what then fails leaves no engine behind."""
        await self._end.finish()
        token = random_tokens.token_hex(8)
        started = self._clock.mono_s()
        record = RunRecord(
            engine=self._engine, boot_id=self._clock.boot_id(), token=token, launch_hash=plan.launch_hash(),
            started_mono_s=started,
        )  # fmt: skip
        self._file.save(record)
        self._plan_file.write(
            unit_plan(plan, mark=self._mark + token, log=self._log.path, token=token, started_mono_s=started)
        )
        self._log.hide(plan.hidden)
        start = in_spare_thread(self._start_unit, START_DEADLINE_S + _SLACK_S)
        starting = asyncio.create_task(start)
        try:
            await asyncio.shield(starting)  # who is cancelled must still know when the request is over
            unit = await self._started(token)
            run = self._run_of(unit, record)
            self._file.save(run.record or record)
        except (LaunchError, SourceError, TimeoutError, asyncio.CancelledError) as cause:
            # It may come up in spite of all: systemd that answers late has started it, or will.
            await self._end.begin(starting)
            if isinstance(cause, asyncio.CancelledError | LaunchError):
                raise
            raise LaunchError(f"engine {self._engine}: {cause or 'systemd does not answer'}") from cause
        return run

    async def _started(self, token: str) -> UnitNow:
        """Wait for the starter's receipt. LaunchError when it says no, or ends without a word."""
        until = self._clock.mono_s() + RECEIPT_DEADLINE_S
        turn = 0
        while True:
            receipt = self._plan_file.receipt()
            if receipt is not None and receipt.token == token:
                return self._confirmed(receipt, await self._show())
            turn += 1
            if turn % 10 == 0 and (unit := await self._show()).ended:
                raise LaunchError(
                    f"{self.unit} is {unit.words} and never ran its plan {self._plan_file.path}; "
                    f"look at journalctl -u {self.unit}"
                )
            if self._clock.mono_s() >= until:
                raise LaunchError(f"{self.unit} has not run its plan after {RECEIPT_DEADLINE_S:g} s")
            await asyncio.sleep(_POLL_S)

    def _confirmed(self, receipt: Receipt, unit: UnitNow) -> UnitNow:
        """The unit, when it still is what the receipt says."""
        if receipt.error:
            raise LaunchError(receipt.error)
        if unit.main_pid == receipt.pid and unit.invocation_id == receipt.invocation_id:
            return unit
        words = self._log.last_words() or f"look at journalctl -u {self.unit}"
        raise LaunchError(f"{self.unit} is {unit.words} right after its start: {words}")

    def _start_unit(self) -> None:
        self._log.begin()
        self._systemd.start(self.unit)

    async def _show(self) -> UnitNow:
        return await in_spare_thread(lambda: self._systemd.show(self.unit), LOOK_DEADLINE_S + _SLACK_S)

    def _run_of(self, unit: UnitNow, record: RunRecord, *, adopted: bool = False) -> EngineRun:
        """The run of a unit that is active. LaunchError when its first process has ended meanwhile."""
        root = self._look(unit.main_pid) if unit.main_pid else None
        if root is None or root.dead:
            words = self._log.last_words() or f"look at journalctl -u {self.unit}"
            raise LaunchError(f"{self.unit}: process {unit.main_pid} ended at once: {words}")
        seen = {"pid": root.pid, "start_ticks": root.start_ticks, "invocation_id": unit.invocation_id}
        record = record.model_copy(update=seen)
        tree = ProcessTree(root.key, known=record.members)
        tree.update([root])
        group = self._folder(unit)
        if group is None:  # without it a process that gets away would not be seen
            named = unit.control_group or "(none)"
            raise LaunchError(f"{self.unit}: its control group {named} is not found below {self._groups}")
        return EngineRun(root.pid, record.started_mono_s, tree, adopted=adopted, record=record, group=group)

    def _folder(self, unit: UnitNow) -> Path | None:
        return group_folder(unit.control_group, self._groups)

    async def adopt(self, plan: LaunchPlan | None) -> EngineRun | None:
        """Take over the unit's run if it is the recorded one and was started as `plan` would start it."""
        if plan is None:
            return None
        unit = await self._ask_state()
        receipt = self._plan_file.receipt()
        record = proof(unit, self._file.load(), receipt, self._engine, self._clock.boot_id())
        if record is None or record.stopping or record.launch_hash != plan.launch_hash():
            return None
        self._log.hide(plan.hidden)
        try:
            run = self._run_of(unit, record, adopted=True)
            self._file.save(run.record or record)
        except LaunchError as cause:
            logger.warning("engine %s is not taken over: %s", self._engine, cause)
            return None
        return run

    async def _ask_state(self) -> UnitNow:
        """The unit now. SourceError when systemd does not say."""
        try:
            return await self._show()
        except TimeoutError as cause:
            raise SourceError(f"{self.unit}: systemd does not answer") from cause

    async def leftovers(self) -> EngineRun | None:
        """The unit's processes, and those that carry this agent's mark outside of it (started otherwise).

        SourceError when systemd does not say: then nobody knows whether an engine runs.
        """
        unit = await self._ask_state()
        folder = self._folder(unit)
        record = self._file.load()
        known: list[Key] = []
        if record is not None and record.boot_id == self._clock.boot_id():
            known += record.members
            if record.pid is not None and record.start_ticks is not None:
                known.append((record.pid, record.start_ticks))
        known += await marked_keys(self._engine, f"{MARKER}={self._mark}")
        root = self._look(unit.main_pid) if unit.main_pid else None
        if root is not None:
            known.append(root.key)
        tree = ProcessTree(known[-1] if known else (0, 0), known=known, root_session=False)
        run = EngineRun(tree.root[0], self._clock.mono_s(), tree, group=folder, record=record)
        alive = await self.processes(run)
        if root is None and alive:
            tree.root = alive[0].key
            run.pid = alive[0].pid
        return run if alive or not unit.ended else None

    async def processes(self, run: EngineRun) -> list[ProcessStat]:
        """Its living processes: its control group's, and those known from elsewhere that live on."""
        try:
            stats = await in_spare_thread(
                lambda: group_table(run.group, frozenset(run.tree.known), self._look), LOOK_DEADLINE_S
            )
        except TimeoutError:  # too loaded a machine: what was alive at the last look still counts as alive
            return [stat for stat in run.tree.members.values() if not stat.dead]
        run.tree.remember(stats)
        alive = run.tree.update(stats)
        if run.watch is not None:
            for stat in alive:
                run.watch.watch(stat)
        return alive

    def follow(self, run: EngineRun, on_death: OnDeath) -> None:
        """Watch its first process at once, and the others as soon as they are found."""
        run.watch = DeathWatch(on_death)
        root = self._look(run.pid)
        if root is not None and root.key == run.tree.root:
            run.watch.watch(root)
        else:
            asyncio.get_running_loop().call_soon(on_death, ended(run.tree.root))
        run.scanner = asyncio.get_running_loop().create_task(self._scan(run))

    async def _scan(self, run: EngineRun) -> None:
        while True:
            try:
                await self.processes(run)
                members = tuple(sorted(run.tree.members))
                if run.record is not None and members != run.record.members:
                    run.record = run.record.model_copy(update={"members": members})
                    self._file.save(run.record)
                await in_spare_thread(self._log.bound, LOOK_DEADLINE_S)
            # Out of descriptors, disk full, a look too slow: the next turn may do better.
            except (OSError, LaunchError) as cause:
                logger.warning("engine %s: cannot look at its processes: %s", self._engine, cause)
            await asyncio.sleep(SCAN_PERIOD_S)

    async def stop(self, run: EngineRun, term_s: float) -> tuple[ProcessStat, ...]:
        """SIGTERM to the first process alone, for vLLM ends its own in order; later SIGKILL to the group.

        The unit's own stop is not used for it: its deadline is fixed, the engine's is in the profile.
        """
        end_watch(run)
        self._file.mark_stopping(run.record)
        telling = asyncio.create_task(self._end.note()) if term_s <= 0 else None
        try:
            return await self._stop(run, term_s)
        finally:
            if telling is not None and telling.done():
                run.end_note = telling.result()

    async def _stop(self, run: EngineRun, term_s: float) -> tuple[ProcessStat, ...]:
        alive = await self.processes(run)
        roots = [stat for stat in alive if stat.key == run.tree.root]
        if term_s > 0 and roots:
            for stat in roots:
                self._send(stat, signal.SIGTERM)
            alive = await self._wait_gone(run, term_s, kill=False)
        if alive:
            alive = await self._wait_gone(run, KILL_DEADLINE_S, kill=True)
        if alive:
            return tuple(alive)
        await self._end.begin()
        self._file.remove()
        try:
            self._plan_file.remove()
        except OSError as cause:
            logger.warning("%s cannot be removed: %s", self._plan_file.path, cause.strerror)
        return ()

    async def _wait_gone(self, run: EngineRun, deadline_s: float, *, kill: bool) -> list[ProcessStat]:
        """Wait until two looks in a row find nothing (a look can miss what is forked during it)."""
        until = self._clock.mono_s() + deadline_s
        empty = 0
        if kill:
            await self._end.kill_all()
        while True:
            alive = await self.processes(run)
            if kill:  # also by hand: systemd may not answer, and what was forked meanwhile must go too
                for stat in alive:
                    self._send(stat, signal.SIGKILL)
            empty = 0 if alive else empty + 1
            if empty >= 2 or self._clock.mono_s() >= until:
                return alive
            await asyncio.sleep(_POLL_S)

    def _send(self, stat: ProcessStat, number: signal.Signals) -> None:
        try:
            send(stat, number)
        except PermissionError:  # of another user (a drop-in's, a container's): systemd's SIGKILL reaches it
            logger.debug("engine %s: process %d is another user's", self._engine, stat.pid)

    def detach(self, run: EngineRun) -> None:
        """Leave it running for a later agent to adopt."""
        end_watch(run)
