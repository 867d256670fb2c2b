"""The host for real: file systems, clock and ports of this machine, and commands that hang or flood."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port

from agent.errors import DeviceAbsent, ParseError, SourceTimeout, SourceUnavailable
from agent.sources import host as host_module
from agent.sources.command import Commands
from agent.sources.host import LiveHost
from agent.sources.host_calls import SpareCalls

PYTHON = (sys.executable, "-I", "-S", "-c")
#: A machine that is busy with something else.
GENEROUS_S = 30.0


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def until(true: object, what: str) -> None:
    end_s = time.monotonic() + GENEROUS_S
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end_s, what
        time.sleep(0.01)


class TestDisk:
    def test_room_is_what_statvfs_says(self, tmp_path: Path) -> None:
        found = LiveHost().disk(str(tmp_path))
        real = os.statvfs(tmp_path)
        assert found.total_b == real.f_blocks * real.f_frsize
        assert 0 <= found.free_b <= found.total_b
        assert 0 <= found.free_inodes <= found.total_inodes
        assert not found.read_only

    def test_sysfs_is_what_it_is(self) -> None:
        assert LiveHost().disk("/sys").total_b == 0

    def test_a_path_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(DeviceAbsent, match="is not there"):
            LiveHost().disk(str(tmp_path / "none"))
        with pytest.raises(SourceUnavailable):
            LiveHost().disk("/with\0nul")

    def test_one_that_hangs_costs_one_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SIMULATED: statvfs of a dead server does not return."""
        release = threading.Event()
        asked = []

        def hangs(path: str) -> None:
            asked.append(path)
            release.wait(GENEROUS_S)

        monkeypatch.setattr(host_module, "DISK_DEADLINE_S", 0.1)
        monkeypatch.setattr("agent.sources.host.os.statvfs", hangs)
        host = LiveHost()
        for _ in range(3):
            with pytest.raises(SourceTimeout, match="statvfs /dead: no answer within"):
                host.disk("/dead")
        assert asked == ["/dead"]
        release.set()
        until(lambda: not host._calls.outstanding, "the thread ends once the server answers")


class TestMount:
    def test_it_answers_with_and_without_its_marker(self, tmp_path: Path) -> None:
        (tmp_path / "ready file").write_text("")
        host = LiveHost()
        with_marker = host.mount(str(tmp_path), "ready file")
        assert with_marker.answered
        assert with_marker.marker is True
        assert with_marker.latency_s > 0
        assert host.mount(str(tmp_path), "none").marker is False
        assert host.mount(str(tmp_path)).marker is None

    def test_a_path_that_is_gone_does_not_answer(self, tmp_path: Path) -> None:
        answer = LiveHost().mount(str(tmp_path / "none"))
        assert not answer.answered
        assert "ENOENT" in answer.problem

    def test_a_probe_that_hangs_is_killed_with_its_children(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SIMULATED: a shell and its child wait as a process in a dead mount would."""
        monkeypatch.setattr(host_module, "MOUNT_DEADLINE_S", 0.5)
        pids = tmp_path / "pids"
        probe = ("/bin/sh", "-c", f"sleep 600 & echo $$ $! > {pids}; wait")
        answer = LiveHost(mount_probe=probe).mount("/dead")
        assert not answer.answered
        assert "no answer within 0.5 s" in answer.problem
        if pids.exists() and (text := pids.read_text()):  # a busy machine may have had no time to write it
            for pid in map(int, text.split()):
                until(lambda pid=pid: gone(pid), "killed")

    @pytest.mark.parametrize("name", ["ESTALE", "EIO", "ENOTCONN"])
    def test_what_a_stale_mount_answers(self, name: str) -> None:
        """SIMULATED: the probe prints what it prints when statvfs fails so."""
        answer = f'{{"errno": "{name}", "problem": "Stale file handle"}}'
        mount = LiveHost(mount_probe=("/bin/echo", answer, "#")).mount
        with pytest.raises(ParseError):  # echo also prints the path: not JSON any more
            mount("/dead")
        found = LiveHost(mount_probe=(*PYTHON, f"print('{answer}')")).mount("/dead")
        assert not found.answered
        assert found.problem == f"Stale file handle ({name})"

    @pytest.mark.parametrize(
        "printed", ["", "x", "[]", "3", '{"marker": 3}', '{"marker": "yes"}', '{"errno": 5}', "null"]
    )
    def test_a_probe_that_prints_nonsense_is_no_evidence(self, printed: str) -> None:
        with pytest.raises(ParseError):
            LiveHost(mount_probe=(*PYTHON, f"print({printed!r})")).mount("/x")

    def test_what_the_agent_may_not_see_is_not_the_mounts_fault(self) -> None:
        answer = '{"errno": "EACCES", "problem": "Permission denied"}'
        with pytest.raises(SourceUnavailable, match="Permission denied"):
            LiveHost(mount_probe=(*PYTHON, f"print('{answer}')")).mount("/secret")


class TestUnit:
    def host(self, tmp_path: Path, script: str) -> LiveHost:
        command = tmp_path / "systemctl"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        return LiveHost(systemctl=str(command))

    def test_it_asks_for_one_unit_by_name(self, tmp_path: Path) -> None:
        """SIMULATED: a script prints what systemctl show prints."""
        shown = "LoadState=loaded\\nActiveState=active\\nSubState=running\\nNRestarts=2\\n"
        host = self.host(tmp_path, f'echo "$@" > {tmp_path}/asked; printf "{shown}"')
        unit = host.unit("chrony.service")
        assert (unit.load_state, unit.active_state, unit.restarts) == ("loaded", "active", 2)
        asked = (tmp_path / "asked").read_text().split()
        assert asked[0] == "show"
        assert asked[-2:] == ["--", "chrony.service"]

    def test_without_systemd_it_says_so(self, tmp_path: Path) -> None:
        host = self.host(tmp_path, "echo 'System has not been booted with systemd' >&2; exit 1")
        with pytest.raises(SourceUnavailable, match="not been booted with systemd"):
            host.unit("chrony.service")
        with pytest.raises(SourceUnavailable, match="cannot start /nowhere/systemctl"):
            LiveHost(systemctl="/nowhere/systemctl").unit("chrony.service")

    def test_the_real_one_answers_or_says_why_not(self) -> None:
        try:
            assert LiveHost().unit("no-such-unit.service").load_state == "not-found"
        except SourceUnavailable as cause:
            assert "systemctl" in str(cause)


def test_the_clock_is_read() -> None:
    clock = LiveHost().clock_sync()
    assert clock.max_error_s >= 0
    assert isinstance(clock.synchronised, bool)


class TestReach:
    @pytest.fixture
    def listener(self) -> Iterator[socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield listener

    def test_an_open_port_accepts(self, listener: socket.socket) -> None:
        found = LiveHost().reach("127.0.0.1", listener.getsockname()[1])
        assert found.accepted
        assert found.problem == ""

    def test_a_closed_port_refuses(self) -> None:
        found = LiveHost().reach("127.0.0.1", free_port())
        assert not found.accepted
        assert "refused" in found.problem

    def test_no_such_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def resolve(*_args: object, **_more: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr("agent.sources.host.socket.create_connection", resolve)
        assert LiveHost().reach("node2", 1).problem == "name or service not known"

    @pytest.mark.parametrize("ends_by", ["resolver", "connect"])
    def test_no_answer(self, monkeypatch: pytest.MonkeyPatch, ends_by: str) -> None:
        """SIMULATED: a resolver that hangs, or a host that drops what it is sent."""
        release = threading.Event()

        def hangs(*_args: object, **_more: object) -> None:
            if ends_by == "connect":
                raise TimeoutError("timed out")
            release.wait(GENEROUS_S)

        monkeypatch.setattr(host_module, "REACH_DEADLINE_S", 0.05)
        monkeypatch.setattr("agent.sources.host.socket.create_connection", hangs)
        found = LiveHost().reach("node2", 29500)
        release.set()
        assert not found.accepted
        assert found.problem.startswith("no answer within")


class TestCommands:
    def test_output_status_and_environment(self) -> None:
        script = "import os, sys; print(sorted(os.environ)); print('bad', file=sys.stderr); sys.exit(3)"
        output = Commands().run([*PYTHON, script], deadline_s=GENEROUS_S, key="x")
        assert output.status == 3
        assert set(eval(output.text)) <= {"PATH", "LC_ALL", "LANG", "LC_CTYPE"}
        assert output.errors == "bad\n"

    def test_too_much_output_ends_it(self) -> None:
        with pytest.raises(SourceUnavailable, match="writes more than 1000 bytes"):
            Commands().run(
                [*PYTHON, "while True: print('x' * 500)"], deadline_s=GENEROUS_S, key="x", limit_b=1000
            )

    def test_a_child_that_keeps_the_pipe_open_does_not_outlive_the_deadline(self) -> None:
        started_s = time.monotonic()
        with pytest.raises(SourceTimeout, match=r"x: no answer within 0\.5 s"):
            Commands().run(["/bin/sh", "-c", "sleep 600 & exit 0"], deadline_s=0.5, key="x")
        assert time.monotonic() - started_s < GENEROUS_S

    def test_nul_and_missing_programs(self) -> None:
        for argv in (["/nowhere/x"], ["/bin/echo", "a\0b"]):
            with pytest.raises(SourceUnavailable, match="cannot start"):
                Commands().run(argv, deadline_s=1, key="x")

    def test_no_second_process_beside_one_that_cannot_be_killed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SIMULATED: SIGKILL has no effect, as on a process in uninterruptible sleep."""
        monkeypatch.setattr("agent.sources.command.REAP_S", 0.05)
        real = os.killpg
        killed: list[int] = []
        monkeypatch.setattr("agent.sources.command.os.killpg", lambda pid, _signal: killed.append(pid))
        commands = Commands()
        with pytest.raises(SourceTimeout, match="no answer"):
            commands.run(["/bin/sleep", "600"], deadline_s=0.05, key="statvfs /dead")
        assert commands.stuck == ("statvfs /dead",)
        for _ in range(3):
            with pytest.raises(SourceTimeout, match=rf"process {killed[0]} has hung in the kernel"):
                commands.run(["/bin/true"], deadline_s=1, key="statvfs /dead")
        assert len(killed) == 1
        assert commands.run(["/bin/true"], deadline_s=GENEROUS_S, key="statvfs /alive").status == 0
        real(killed[0], 9)
        until(lambda: not commands.stuck, "it has ended at last")
        assert commands.run(["/bin/true"], deadline_s=GENEROUS_S, key="statvfs /dead").status == 0

    def test_the_same_question_from_two_threads_waits_its_turn(self) -> None:
        commands = Commands()
        statuses: list[int] = []

        def ask() -> None:
            statuses.append(commands.run(["/bin/true"], deadline_s=GENEROUS_S, key="x").status)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [0] * 4


class TestSpareCalls:
    def test_results_and_failures_come_back(self) -> None:
        calls = SpareCalls()
        assert calls.call("x", lambda: 7, GENEROUS_S) == 7
        with pytest.raises(ZeroDivisionError):
            calls.call("x", lambda: 1 // 0, GENEROUS_S)
        until(lambda: calls.outstanding == (), "nothing is left")

    def test_who_asks_the_same_meanwhile_gets_the_same_answer(self) -> None:
        calls, release, asked = SpareCalls(), threading.Event(), []

        def slow() -> str:
            asked.append(1)
            release.wait(GENEROUS_S)
            return "answer"

        answers: list[str] = []
        threads = [
            threading.Thread(target=lambda: answers.append(calls.call("x", slow, GENEROUS_S)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        until(lambda: asked, "asked")
        release.set()
        for thread in threads:
            thread.join()
        assert answers == ["answer"] * 3
        assert len(asked) <= 3

    def test_no_thread_to_be_had(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        calls = SpareCalls()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(SourceUnavailable, match="no thread"):
                calls.call("x", lambda: 1, 1.0)
        assert calls.call("x", lambda: 1, GENEROUS_S) == 1
