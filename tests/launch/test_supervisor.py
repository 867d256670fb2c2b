"""The process-group supervisor with processes that misbehave, and what the controller makes of the worst."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from fake_sources import FakeNode
from launch_kit import NAME, alive, engine_profile, rig
from ports import free_port

from agent.errors import LaunchError
from agent.launch import gpu_release as release_module
from agent.launch import supervisor as supervisor_module
from agent.launch.engine_log import EngineLog
from agent.launch.gpu_release import Release, gpu_release
from agent.launch.launch_profile import LaunchPlan
from agent.launch.spare_thread import in_spare_thread
from agent.launch.supervisor import EngineRun, ProcessGroupSupervisor
from agent.model import EnginePhase
from agent.sources.processes import ProcessStat, process


def plan(program: str, *arguments: str, **changes: object) -> LaunchPlan:
    """A launch of some Python."""
    base = LaunchPlan(
        engine=NAME,
        argv=(sys.executable, "-c", textwrap.dedent(program), *arguments),
        env={"PATH": os.environ["PATH"]},
        origins={},
        inherited=frozenset(("PATH",)),
        working_dir=None,
        notes=(),
        gpu_uuids=(),
        numa=(),
        host="127.0.0.1",
        port=1,
        model_name="m",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def supervisor(folder: Path) -> ProcessGroupSupervisor:
    return ProcessGroupSupervisor(NAME, state_dir=folder / "state", log=EngineLog(folder / "log" / "a.log"))


async def until_file(path: Path, lines: int) -> list[int]:
    """The pids that a program wrote, one a line."""
    async with asyncio.timeout(30):
        while True:
            text = path.read_text() if path.exists() else ""  # noqa: ASYNC240 (a file of a few bytes)
            if text.count("\n") >= lines:
                return [int(line) for line in text.split()]
            await asyncio.sleep(0.01)


#: Ignores SIGTERM; a grandchild leaves the session and loses its parent, as a daemon does.
ESCAPING = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    def note():
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()}\\n")
    note()
    if os.fork() == 0:
        time.sleep(float(sys.argv[2]))
        os.setsid()
        if os.fork() == 0:
            note()
            time.sleep(600)
        time.sleep(float(sys.argv[2]))
        os._exit(0)
    time.sleep(600)
"""


def test_a_child_that_leaves_the_session_is_ended_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        boss = supervisor(tmp_path)
        run = await boss.start(plan(ESCAPING, str(tmp_path / "pids"), "1.5"))
        deaths: list[ProcessStat] = []
        boss.follow(run, deaths.append)
        root, daemon = await until_file(tmp_path / "pids", 2)
        assert root == run.pid
        async with asyncio.timeout(30):
            while daemon not in {stat.pid for stat in await boss.processes(run)}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert process(daemon).session != run.pid  # type: ignore[union-attr]
        assert await boss.stop(run, 0.3) == ()
        assert not alive(root) and not alive(daemon)
        assert process(root) is None and process(daemon) is None  # nothing is left to reap

    asyncio.run(scenario())


def test_a_daemon_that_got_away_before_the_first_look_is_ended_too(tmp_path: Path) -> None:
    """It forks twice and leaves the session at once: by session and parent it is nobody's any more."""
    daemonising = """
        import os, sys, time
        if (between := os.fork()) == 0:
            os.setsid()
            if os.fork() == 0:
                with open(sys.argv[1], "w") as file:
                    file.write(f"{os.getpid()}\\n")
                time.sleep(600)
            os._exit(0)
        os.waitpid(between, 0)
        time.sleep(600)
    """

    async def scenario() -> None:
        boss = supervisor(tmp_path)
        run = await boss.start(plan(daemonising, str(tmp_path / "pids")))
        (daemon,) = await until_file(tmp_path / "pids", 1)
        async with asyncio.timeout(30):
            while process(daemon).ppid != os.getpid():  # type: ignore[union-attr]  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await boss.stop(run, 0.3) == ()
        assert process(run.pid) is None and process(daemon) is None

    asyncio.run(scenario())


def test_a_tree_that_forks_while_it_is_killed(tmp_path: Path) -> None:
    forking = """
        import os, signal, time
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for _ in range(20):
            if os.fork() == 0:
                for _ in range(400):
                    if os.fork() == 0:
                        time.sleep(600)
                    time.sleep(0.02)
                os._exit(0)
        time.sleep(600)
    """

    async def scenario() -> None:
        boss = supervisor(tmp_path)
        run = await boss.start(plan(forking))
        async with asyncio.timeout(30):
            while len(await boss.processes(run)) < 50:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await boss.stop(run, 0) == ()
        assert await boss.processes(run) == []

    asyncio.run(scenario())


def test_a_death_is_heard_of_once_and_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        boss = supervisor(tmp_path)
        run = await boss.start(plan("pass"))
        deaths: list[ProcessStat] = []
        boss.follow(run, deaths.append)
        async with asyncio.timeout(30):
            while not deaths:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await boss.processes(run)
        await asyncio.sleep(0.1)
        assert [stat.pid for stat in deaths] == [run.pid]
        assert await boss.stop(run, 0) == ()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"argv": ("/no/such/program",)}, "/no/such/program cannot be started: No such file"),
        ({"working_dir": "/no/such/folder"}, "/no/such/folder cannot be started: No such file"),
        ({"argv": ("/etc/passwd",)}, "/etc/passwd cannot be started: Permission denied"),
    ],
)
def test_what_cannot_be_started_is_one_line(tmp_path: Path, changes: dict[str, object], text: str) -> None:
    with pytest.raises(LaunchError, match=text) as refused:
        asyncio.run(supervisor(tmp_path).start(plan("pass", **changes)))
    assert "\n" not in str(refused.value)


def test_without_a_record_nothing_is_started(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    with pytest.raises(LaunchError, match="cannot be written"):
        asyncio.run(supervisor(tmp_path).start(plan("raise SystemExit('was started')")))
    assert not (tmp_path / "log" / "a.log").exists()


STUCK = ProcessStat(4242, 1, 4242, "D", 1, 1, "VLLM::Worker")


class StuckSupervisor(ProcessGroupSupervisor):
    """A supervisor whose engine survives SIGKILL, as one stuck in the kernel does."""

    stuck = False

    async def stop(self, run: EngineRun, term_s: float) -> tuple[ProcessStat, ...]:
        await super().stop(run, term_s)
        self.stuck = True
        return (STUCK,)

    async def processes(self, run: EngineRun) -> list[ProcessStat]:
        return [STUCK] if self.stuck else await super().processes(run)


def test_an_engine_that_cannot_be_killed_waits_for_a_person(tmp_path: Path) -> None:
    async def scenario() -> None:
        boss = StuckSupervisor(NAME, state_dir=tmp_path / "state", log=EngineLog(tmp_path / "log" / "a.log"))
        async with rig(tmp_path, engine_profile(free_port()), supervisor=boss) as r:
            await r.start()
            r.controller.stop_engine()
            await r.until_phase(EnginePhase.UNKILLABLE)
            assert (
                "SIGKILL does not end 4242 (VLLM::Worker, state D); reboot the node"
                in r.controller.status.reason
            )
            r.controller.start_engine()
            r.controller.reset_crashes()
            await r.until("a refusal", lambda: "still cannot be ended: 4242" in r.controller.status.reason)
            assert r.controller.status.phase is EnginePhase.UNKILLABLE
            boss.stuck = False
            r.controller.reset_crashes()
            await r.until_phase(EnginePhase.ABSENT)

    asyncio.run(scenario())


def gpu_node(pids: list[int]) -> FakeNode:
    identity = {"index": 0, "uuid": "GPU-a"}
    return FakeNode({"nvml": {"system": {}, "gpus": [{"identity": identity, "processes": {"pids": pids}}]}})


def test_gpu_memory_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    node = gpu_node([7, 8])

    async def scenario() -> None:
        waiting = asyncio.create_task(gpu_release(node.nvml, ["GPU-a"], {7, 99}))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        node.set("nvml.gpus.0.processes", {"pids": [8]})  # another program's process may stay
        assert (await waiting)[0] is Release.FREE

    asyncio.run(scenario())


def test_gpu_memory_that_stays_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "RELEASE_DEADLINE_S", 0.2)
    release, text = asyncio.run(gpu_release(gpu_node([7]).nvml, ["GPU-a"], {7}))
    assert (release, text) == (Release.HELD, "NVML still lists ended processes: 7 on GPU-a")


def test_nvml_that_cannot_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "SILENCE_DEADLINE_S", 0.2)
    node = gpu_node([7])
    node.set("nvml.gpus.0.processes", {"error": "TIMEOUT"})
    release, text = asyncio.run(gpu_release(node.nvml, ["GPU-a"], {7}))
    assert release is Release.UNKNOWN
    assert "NVML cannot say" in text


def test_a_hanging_function_is_given_up() -> None:
    async def scenario() -> None:
        import threading

        never = threading.Event()
        with pytest.raises(TimeoutError):
            await in_spare_thread(never.wait, 0.1)
        never.set()
        assert await in_spare_thread(lambda: 5, 10) == 5
        with pytest.raises(ZeroDivisionError):
            await in_spare_thread(lambda: 1 / 0, 10)

    asyncio.run(scenario())


def test_a_look_that_takes_too_long_does_not_read_as_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never() -> list[ProcessStat]:
        raise TimeoutError

    async def scenario() -> None:
        boss = supervisor(tmp_path)
        run = await boss.start(plan("import time; time.sleep(600)"))
        with monkeypatch.context() as patched:
            patched.setattr(supervisor_module, "_table", never)
            patched.setattr(supervisor_module, "KILL_DEADLINE_S", 0.3)
            survivors = await boss.stop(run, 0)
            assert [stat.pid for stat in survivors] == [run.pid]  # killed, but nobody has seen it end
        assert await boss.stop(run, 0) == ()

    asyncio.run(scenario())
