"""The supervisor through systemd, against a stand-in in memory: no process is started, none is signalled."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_sources import FakeNode
from fake_systemd import FakeSystemd
from launch_kit import NAME, bare_node, engine_profile

import agent
from agent.errors import LaunchError, SourceError
from agent.launch import recovery as recovery_module
from agent.launch import systemd_supervisor as module
from agent.launch import unit_end as end_module
from agent.launch.choose_supervisor import make_supervisor, units_are_set_up
from agent.launch.clean_up import LifeEnd, clean_up
from agent.launch.crash_tail import LINE_CHARS, crash_tail
from agent.launch.engine_log import EngineLog
from agent.launch.launch_profile import LaunchPlan
from agent.launch.recovery import find_earlier
from agent.launch.run_record import RunFile
from agent.launch.status_book import StatusBook
from agent.launch.supervisor import ProcessGroupSupervisor
from agent.launch.systemd_supervisor import SystemdSupervisor
from agent.launch.unit_plan import UnitPlanFile
from agent.node_parts import Supervision
from agent.sources.engine import EngineBoard
from agent.sources.processes import ProcessStat, process


def plan(**changes: Any) -> LaunchPlan:
    base = LaunchPlan(
        engine=NAME,
        argv=("vllm", "serve"),
        env={"PATH": "/usr/bin"},
        origins={},
        inherited=frozenset(("PATH",)),
        working_dir=None,
        notes=(),
        gpu_uuids=(),
        numa=(),
        host="127.0.0.1",
        port=1,
        model_name="m",
        secrets={"VLLM_API_KEY": "very-secret"},
        env_file="/etc/nodegate/secrets.env",
    )
    return replace(base, **changes)


class Bench:
    """A stand-in systemd and the agents that come one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan_file = UnitPlanFile(folder / "run", NAME)
        self.record = RunFile(folder / "state" / f"engine-{NAME}.json")
        self.systemd = FakeSystemd(folder, self.plan_file.path)

        self.log = EngineLog(folder / "log" / "a.log")

    def agent(self) -> SystemdSupervisor:
        return SystemdSupervisor(
            NAME,
            systemd=self.systemd,
            state_dir=self.folder / "state",
            run_dir=self.folder / "run",
            log=self.log,
            groups=self.systemd.groups,
            look=self.systemd.look,
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path)
    monkeypatch.setattr(module, "send", bench.systemd.send)
    # The machine's own processes have nothing to do with it.
    monkeypatch.setattr("agent.launch.unit_proof.marked", lambda _mark: [])
    for name in ("KILL_DEADLINE_S", "RECEIPT_DEADLINE_S"):
        monkeypatch.setattr(module, name, 0.1)
    monkeypatch.setattr(module, "_POLL_S", 0.005)
    monkeypatch.setattr(end_module, "PATIENCE_S", 0.1)
    monkeypatch.setattr(end_module, "RETRY_S", 0.005)
    return bench


def go(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_start_watch_and_stop(bench: Bench) -> None:
    async def scenario() -> None:
        agent = bench.agent()
        run = await agent.start(plan())
        assert (run.pid, run.adopted) == (bench.systemd.unit.main_pid, False)
        written = json.loads(bench.plan_file.path.read_text())
        assert written["argv"] == ["vllm", "serve"] and written["env_file"] == "/etc/nodegate/secrets.env"
        assert "very-secret" not in bench.plan_file.path.read_text()
        assert bench.plan_file.path.stat().st_mode & 0o777 == 0o600
        assert {stat.comm for stat in await agent.processes(run)} == {"python", "VLLM::EngineCore"}
        assert await agent.stop(run, 1.0) == ()
        assert bench.systemd.said[1:] == ["signal 15 to python"]  # the first process alone, no stop job
        assert not bench.plan_file.path.exists() and bench.record.load() is None

    go(scenario())


def test_what_the_engine_before_has_said_is_not_its_last_words(bench: Bench) -> None:
    async def scenario() -> None:
        bench.log.path.parent.mkdir()
        bench.log.path.write_text("RuntimeError: of the one before\n")
        await bench.agent().start(plan())
        assert bench.log.last_words() == "" and bench.log.own(10) == [] != bench.log.tail(10)

    go(scenario())


def test_what_ignores_sigterm_is_killed_as_a_group(bench: Bench) -> None:
    async def scenario() -> None:
        bench.systemd.ignores_term = True
        agent = bench.agent()
        run = await agent.start(plan())
        bench.systemd.add("daemon")
        assert await agent.stop(run, 0.02) == ()
        assert bench.systemd.said[1:3] == ["signal 15 to python", "kill"]
        assert bench.systemd.table == {}

    go(scenario())


def test_a_fault_kills_at_once_even_while_systemd_is_silent(bench: Bench) -> None:
    async def scenario() -> None:
        agent = bench.agent()
        run = await agent.start(plan())
        bench.systemd.silent = True
        assert await agent.stop(run, 0) == ()
        assert bench.systemd.table == {}
        with pytest.raises(LaunchError, match="earlier run is still being ended: systemd does not answer"):
            await agent.start(plan())
        assert bench.systemd.runs == 1

    go(scenario())


def test_what_systemd_knows_of_an_end_is_told(bench: Bench) -> None:
    async def scenario() -> None:
        agent = bench.agent()
        run = await agent.start(plan())
        bench.systemd.unit = replace(bench.systemd.unit, active_state="deactivating", result="oom-kill")
        outcome = await clean_up(agent, run, LifeEnd(0), FakeNode(bare_node()).sources, (), asyncio.Event())
        assert not outcome.stuck
        assert outcome.note == "the kernel killed it for memory (systemd: oom-kill)"

    go(scenario())


def test_survivors_of_sigkill_are_reported_and_stay_on_record(bench: Bench) -> None:
    async def scenario() -> None:
        agent = bench.agent()
        run = await agent.start(plan())
        (core,) = (pid for pid in bench.systemd.table if pid != run.pid)
        bench.systemd.stuck = {core}
        assert [(stat.pid, stat.state) for stat in await agent.stop(run, 0.02)] == [(core, "D")]
        assert [stat.pid for stat in await agent.processes(run)] == [core]
        left = await bench.agent().leftovers()  # a restarted agent finds it too, in the unit's group
        assert left is not None and left.pid == core
        assert await bench.agent().adopt(plan()) is None
        bench.systemd.stuck = set()
        bench.systemd.end(core)
        assert await agent.processes(run) == []

    go(scenario())


@pytest.mark.parametrize("lost", ["", "record", "receipt"])
def test_a_later_agent_takes_exactly_this_run_over(bench: Bench, lost: str) -> None:
    async def scenario() -> None:
        first = await bench.agent().start(plan())
        if lost == "record":
            bench.record.remove()
        if lost == "receipt":
            bench.plan_file.remove()
        agent = bench.agent()
        left = await agent.leftovers()
        assert left is not None and left.pid == first.pid
        run = await agent.adopt(plan(env={"PATH": "/other"}))  # an inherited variable is no part of it
        assert run is not None and run.adopted
        assert (run.pid, run.started_mono_s) == (first.pid, first.started_mono_s)
        assert {stat.comm for stat in await agent.processes(run)} == {"python", "VLLM::EngineCore"}
        assert bench.systemd.runs == 1 and bench.systemd.said == ["start"]

    go(scenario())


def test_killed_between_start_and_record(bench: Bench) -> None:
    """The record has no pid yet: the starter's receipt says which launch this run is."""

    async def scenario() -> None:
        agent = bench.agent()
        kept = await agent.start(plan())
        assert kept.record is not None
        bench.record.save(kept.record.model_copy(update={"pid": None, "invocation_id": None, "members": ()}))
        run = await bench.agent().adopt(plan())
        assert run is not None and run.pid == kept.pid

    go(scenario())


@pytest.mark.parametrize("why", ["other launch", "other run", "stopping", "deactivating", "no plan", "dead"])
def test_what_is_not_proved_is_not_taken_over(bench: Bench, why: str) -> None:
    async def scenario() -> None:
        run = await bench.agent().start(plan())
        wanted: LaunchPlan | None = plan()
        if why == "other launch":
            wanted = plan(argv=("vllm", "serve", "--enforce-eager"))
        if why == "other run":  # somebody restarted the unit: it was not this agent that did
            bench.systemd.unit = replace(bench.systemd.unit, invocation_id="run-of-somebody")
        if why == "stopping":
            bench.record.mark_stopping(run.record)
        if why == "deactivating":
            bench.systemd.unit = replace(bench.systemd.unit, active_state="deactivating")
        if why == "no plan":
            wanted = None
        if why == "dead":
            bench.systemd.table.pop(run.pid)
        agent = bench.agent()
        assert await agent.adopt(wanted) is None
        left = await agent.leftovers()
        assert left is not None
        assert await agent.stop(left, 0.02) == ()
        assert bench.systemd.table == {} and bench.systemd.unit.ended

    go(scenario())


def test_a_start_cancelled_before_systemd_has_heard_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_module, "PATIENCE_S", 10.0)
    asked, heard = threading.Event(), threading.Event()
    start = bench.systemd.start

    def late(unit: str) -> None:
        asked.set()
        heard.wait(10)
        start(unit)

    async def scenario() -> None:
        monkeypatch.setattr(bench.systemd, "start", late)
        starting = asyncio.create_task(bench.agent().start(plan()))
        await asyncio.to_thread(asked.wait, 10)
        starting.cancel()
        await asyncio.sleep(0.05)  # the unit has been looked at meanwhile: it does not run
        heard.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert bench.systemd.runs == 1 and bench.systemd.table == {} and bench.systemd.unit.ended

    go(scenario())


def test_nothing_is_left_of_a_unit_that_never_ran(bench: Bench) -> None:
    go(_nothing_left(bench))


async def _nothing_left(bench: Bench) -> None:
    assert await bench.agent().leftovers() is None
    assert await bench.agent().adopt(plan()) is None


def test_a_silent_systemd_is_waited_for_before_anything_is_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_module, "_RETRY_S", 0.01)

    async def scenario() -> None:
        started = await bench.agent().start(plan())
        bench.systemd.silent = True
        with pytest.raises(SourceError, match="no answer"):
            await bench.agent().leftovers()
        board = EngineBoard(lambda _kind: None)
        book = StatusBook(NAME, FakeNode(bare_node()).sources.clock, board, lambda _status: None)

        async def build() -> LaunchPlan:
            return plan()

        looking = asyncio.create_task(find_earlier(bench.agent(), book, build))
        async with asyncio.timeout(10):
            while "not known yet" not in book.record.reason:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert not looking.done()
        bench.systemd.silent = False
        left, run, _ = await looking
        assert left is not None and run is not None and run.pid == started.pid

    go(scenario())


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        ("refused", "Access denied; install the polkit rule"),
        ("silent", "still being ended: systemd does not answer"),
        ("starter", "engine sim: vllm cannot be started"),
        ("gone", "is inactive .dead. right after its start"),
    ],
)
def test_a_start_that_fails_is_one_line_and_leaves_nothing(bench: Bench, trouble: str, text: str) -> None:
    async def scenario() -> None:
        systemd = bench.systemd
        if trouble == "refused":
            systemd.refusal = "systemctl start: Access denied; install the polkit rule"
        if trouble == "silent":
            systemd.silent = True
        if trouble == "starter":
            systemd.start_error = "engine sim: vllm cannot be started: No such file or directory"
        if trouble == "gone":
            systemd.on_start = lambda: systemd.end(systemd.unit.main_pid)
        with pytest.raises(LaunchError, match=text) as refused:
            await bench.agent().start(plan())
        assert "\n" not in str(refused.value)
        assert systemd.table == {} and systemd.unit.ended

    go(scenario())


def test_a_unit_that_ends_without_running_its_plan(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECEIPT_DEADLINE_S", 5.0)

    def ends() -> None:
        bench.plan_file.receipt_path.unlink()
        bench.systemd.table.clear()
        failed = {"active_state": "failed", "sub_state": "failed", "result": "exit-code", "exit_status": 3}
        bench.systemd.unit = replace(bench.systemd.unit, main_pid=0, **failed)

    async def scenario() -> None:
        bench.systemd.on_start = ends
        with pytest.raises(LaunchError, match=r"result exit-code, exit status 3 and never ran its plan"):
            await bench.agent().start(plan())
        assert bench.systemd.said == ["start", "reset-failed"]

    go(scenario())


def test_a_unit_that_somebody_started_is_ended_before_the_start(bench: Bench) -> None:
    async def scenario() -> None:
        await bench.agent().start(plan())
        run = await bench.agent().start(plan(argv=("vllm", "serve", "--other")))
        assert bench.systemd.said[:2] == ["start", "kill"] and bench.systemd.runs == 2
        assert len(bench.systemd.table) == 2 and run.pid == bench.systemd.unit.main_pid

    go(scenario())


def test_a_cancelled_start_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_module, "PATIENCE_S", 10.0)

    async def scenario() -> None:
        bench.systemd.on_start = bench.plan_file.receipt_path.unlink  # the starter is slow
        starting = asyncio.create_task(bench.agent().start(plan()))
        async with asyncio.timeout(10):
            while not bench.systemd.table:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert bench.systemd.table == {} and bench.systemd.unit.ended

    go(scenario())


def test_deaths_are_heard_of(bench: Bench) -> None:
    """The first process is this one, so that there is a real process to watch; the core never was."""

    async def scenario() -> None:
        own = process(os.getpid())
        assert own is not None
        bench.systemd.main_pid = own.pid
        agent = bench.agent()
        run = await agent.start(plan())
        bench.systemd.table[own.pid] = own
        run.tree.root = own.key
        deaths: list[ProcessStat] = []
        agent.follow(run, deaths.append)
        async with asyncio.timeout(10):
            while not deaths:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        agent.detach(run)
        assert [stat.comm for stat in deaths] == ["VLLM::EngineCore"]
        kept = bench.record.load()
        assert kept is not None and len(kept.members) == 2
        assert run.scanner is None and run.watch is None

    go(scenario())


def test_a_first_process_that_is_gone_before_it_is_watched(bench: Bench) -> None:
    async def scenario() -> None:
        agent = bench.agent()
        run = await agent.start(plan())
        bench.systemd.end(run.pid)
        deaths: list[ProcessStat] = []
        agent.follow(run, deaths.append)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        agent.detach(run)
        assert [stat.key for stat in deaths] == [run.tree.root]

    go(scenario())


@pytest.mark.parametrize(
    ("environ", "group", "installed", "set_up"),
    [
        ({"INVOCATION_ID": "x"}, "/system.slice/nodegate.service", True, True),
        ({"INVOCATION_ID": "x"}, "/system.slice/nodegate.service", False, False),
        ({}, "/system.slice/nodegate.service", True, False),
        ({"INVOCATION_ID": "x"}, "/user.slice/user-1.slice/user@1.service/app.slice/a.service", True, False),
        ({"INVOCATION_ID": "x"}, "/system.slice/ssh.service/session.scope", True, False),
        ({"INVOCATION_ID": "x"}, None, True, False),
    ],
)
def test_units_are_used_where_they_are_set_up(
    tmp_path: Path, environ: dict[str, str], group: str | None, installed: bool, set_up: bool
) -> None:
    if installed:
        shutil.copy(Path(agent.__file__).parent / "units" / "nodegate-engine@.service", tmp_path)
    folders = (tmp_path / "none", tmp_path)
    assert units_are_set_up(environ, group, Path("/run/nodegate"), folders) is set_up
    assert not units_are_set_up(environ, group, Path("/run/other"), folders)  # another agent's units


@pytest.mark.parametrize(
    ("wanted", "simulated", "form"),
    [
        (Supervision.SYSTEMD, False, SystemdSupervisor),
        (Supervision.SYSTEMD, True, ProcessGroupSupervisor),
        (Supervision.PROCESS, False, ProcessGroupSupervisor),
        (Supervision.AUTO, False, ProcessGroupSupervisor),
    ],
)
def test_the_profile_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Supervision, simulated: bool, form: type
) -> None:
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    profile = engine_profile(1).profile.model_copy(update={"supervision": wanted})
    log = EngineLog(tmp_path / "a.log")
    chosen = make_supervisor(
        profile, NAME, state_dir=tmp_path, run_dir=tmp_path, log=log, simulated=simulated
    )
    assert isinstance(chosen, form)


def test_the_end_of_a_log_is_cut_and_has_no_secrets(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.hide(("very-secret",))
    log.path.write_text("".join(f"line {i}\n" for i in range(100)) + "key very-secret\n" + "x" * 5000 + "\n")
    lines = crash_tail(log)
    assert len(lines) == 40 and lines[0] == "line 62"
    assert lines[-2] == "key ***"
    assert len(lines[-1]) == LINE_CHARS and lines[-1].endswith("...")
