"""A stand-in for systemd in memory: one unit, its control group as a folder, its processes as a table.

Nothing is started. `start` does what the unit's starter would: it reads the plan file and leaves a receipt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from agent.errors import SourceTimeout, SourceUnavailable
from agent.launch.unit_plan import SCHEMA, Receipt, read_unit_plan, receipt_of, write_private
from agent.sources.processes import ProcessStat
from agent.sources.systemd import UnitNow

GROUP = "/system.slice/engine.service"


class FakeSystemd:
    """Its unit's processes begin at pid 5000001, which no machine has, unless `pids` says otherwise."""

    def __init__(self, folder: Path, plan_path: Path) -> None:
        """The unit is installed and has never run."""
        self.groups = folder / "cgroup"
        self.plan_path = plan_path
        self.unit = UnitNow("engine.service", "loaded", "inactive", "dead")
        self.table: dict[int, ProcessStat] = {}
        self.said: list[str] = []
        self.runs = 0
        self.next_pid = 5_000_001
        self.main_pid: int | None = None
        self.start_error = ""
        self.refusal = ""
        self.silent = False
        #: Processes that no signal ends.
        self.stuck: set[int] = set()
        self.ignores_term = False
        self.on_start: Callable[[], None] = lambda: None

    def look(self, pid: int) -> ProcessStat | None:
        """The process table."""
        return self.table.get(pid)

    def add(self, comm: str = "python", pid: int | None = None, ticks: int = 7) -> ProcessStat:
        """One more process in the unit's control group, a daemon that nobody is the parent of."""
        pid = pid or self.next_pid
        self.next_pid += 1
        stat = ProcessStat(pid, 1, pid, "S", 1, ticks, comm)
        self.table[pid] = stat
        self._write_group()
        return stat

    def end(self, pid: int) -> None:
        """A process has ended."""
        if pid in self.stuck:
            self.table[pid] = replace(self.table[pid], state="D")
            return
        self.table.pop(pid, None)
        if pid == self.unit.main_pid:  # KillMode=mixed: what is left is killed when the first has ended
            for other in list(self.table):
                self.end(other)
            if self.unit.active_state == "active":
                self.unit = replace(self.unit, active_state="inactive", sub_state="dead", main_pid=0)
        self._write_group()

    def send(self, stat: ProcessStat, number: int) -> None:
        """What stands for a signal by pidfd."""
        self.said.append(f"signal {int(number)} to {stat.comm}")
        if not (self.ignores_term and number == 15):
            self.end(stat.pid)

    def _write_group(self) -> None:
        folder = self.groups / GROUP.strip("/")
        (folder / "below").mkdir(parents=True, exist_ok=True)
        first, *others = [str(pid) for pid in self.table] or [""]
        (folder / "cgroup.procs").write_text(f"{first}\n")
        # A container runtime puts processes into groups below.
        (folder / "below" / "cgroup.procs").write_text("\n".join(others))

    def _answer(self, what: str) -> None:
        self.said.append(what)
        if self.silent:
            raise SourceTimeout("systemctl: no answer within 5 s")
        if self.refusal:
            raise SourceUnavailable(self.refusal)

    def show(self, unit: str) -> UnitNow:
        if self.silent:
            raise SourceTimeout(f"systemctl show {unit}: no answer within 5 s")
        return self.unit

    def start(self, unit: str) -> None:
        self._answer("start")
        plan = read_unit_plan(self.plan_path)
        self.runs += 1
        run = f"run-{self.runs}"
        root = self.add(pid=self.main_pid)
        self.add("VLLM::EngineCore")
        self.unit = replace(
            self.unit,
            active_state="active",
            sub_state="running",
            main_pid=root.pid,
            invocation_id=run,
            control_group=GROUP,
        )
        receipt = Receipt(plan.token, plan.launch_hash, run, root.pid, plan.started_mono_s, self.start_error)
        write_private(receipt_of(self.plan_path), {"schema": SCHEMA, **asdict(receipt)})
        self.on_start()

    def stop(self, unit: str) -> None:
        self._answer("stop")
        if not self.table:
            self.unit = replace(self.unit, active_state="inactive", sub_state="dead", main_pid=0)

    def kill_all(self, unit: str) -> None:
        self._answer("kill")
        for pid in list(self.table):
            self.end(pid)

    def reset_failed(self, unit: str) -> None:
        self._answer("reset-failed")
        self.unit = replace(self.unit, active_state="inactive", sub_state="dead")
