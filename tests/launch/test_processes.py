"""Processes from /proc, the engine's tree, and whose end counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.death_rule import core_of, fault_of_death
from agent.launch.process_tree import ProcessTree
from agent.sources.processes import ProcessStat, marked, parse_stat, process, processes


def stat(
    pid: int, *, ppid: int = 1, session: int = 0, start: int = 0, state: str = "S", comm: str = "x"
) -> ProcessStat:
    """A process."""
    return ProcessStat(pid, ppid, session or pid, state, 1, start or pid, comm)


def test_a_stat_line_with_a_nasty_name() -> None:
    tail = "S 7 11 12 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 5 0 987654 0 0"
    found = parse_stat(f"42 (a) (b c) {tail}")
    assert found == ProcessStat(42, 7, 12, "S", 5, 987654, "a) (b c")


@pytest.mark.parametrize(
    "text", ["", "42", "42 (x) S 1", "x (y) S 7 11 12 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 5 0 9"]
)
def test_garbage_is_no_process(text: str) -> None:
    assert parse_stat(text) is None


def test_this_process_is_found() -> None:
    found = process(os.getpid())
    assert found is not None
    assert (found.pid, found.ppid, found.session) == (os.getpid(), os.getppid(), os.getsid(0))
    assert not found.dead
    assert found.key in {other.key for other in processes()}


def test_a_pid_that_is_not_there(tmp_path: Path) -> None:
    assert process(1, tmp_path) is None


def test_a_zombie_with_threads_left_is_not_dead() -> None:
    assert ProcessStat(1, 1, 1, "Z", 1, 1, "x").dead
    assert not ProcessStat(
        1, 1, 1, "Z", 2, 1, "x"
    ).dead  # its leader ended, another thread is stuck in a driver


def test_processes_are_found_by_their_mark() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, "NODEGATE_TEST": "a@b:c"}
    )
    try:
        assert [found.pid for found in marked("NODEGATE_TEST=a@b:")] == [child.pid]
        assert marked("NODEGATE_TEST=a@c:") == []
    finally:
        child.kill()
        child.communicate()


def test_orphans_of_the_session_belong_to_the_engine() -> None:
    tree = ProcessTree((10, 10))
    root, core = stat(10), stat(11, ppid=10, session=10)
    tree.update([root, core, stat(99)])
    orphan = stat(11, ppid=1, session=10)
    assert tree.update([orphan, stat(99)]) == [orphan]
    late = stat(12, ppid=1, session=10)  # never seen as anybody's child
    assert tree.update([orphan, late]) == [orphan, late]


def test_descendants_that_left_the_session_belong_to_it_too() -> None:
    tree = ProcessTree((10, 10))
    tree.update(
        [
            stat(10),
            stat(11, ppid=10, session=10),
            stat(12, ppid=11, session=12),
            stat(13, ppid=12, session=12),
        ]
    )
    orphans = [stat(12, ppid=1, session=12), stat(13, ppid=1, session=12)]
    assert tree.update([*orphans, stat(99)]) == orphans


def test_a_pid_that_is_used_again_is_not_the_engines() -> None:
    tree = ProcessTree((10, 10))
    tree.update([stat(10)])
    assert tree.update([stat(10, start=777), stat(20, ppid=10, session=10, start=778)]) == []


def test_after_a_gap_the_roots_number_proves_nothing() -> None:
    tree = ProcessTree((10, 10), known=[(11, 11)], root_session=False)
    assert tree.update([stat(30, session=10, start=999)]) == []
    survivor, sibling = stat(11, ppid=1, session=10), stat(30, ppid=1, session=10)
    assert tree.update([survivor, sibling]) == [
        survivor,
        sibling,
    ]  # a member shows that it is still that session


def test_the_dead_are_members_but_not_alive() -> None:
    tree = ProcessTree((10, 10))
    assert tree.update([stat(10, state="Z")]) == []
    assert list(tree.members) == [(10, 10)]


ROOT = (10, 10)


def test_whose_end_is_a_fault() -> None:
    root, core, tracker = stat(10, comm="vllm"), stat(11, comm="VLLM::EngineCor"), stat(12, comm="python3")
    compiler = stat(13, comm="ptxas")
    whole = core_of([root, core, tracker, compiler])
    for victim in (root, core, tracker):
        assert fault_of_death(victim, ROOT, whole) is not None
    assert fault_of_death(compiler, ROOT, whole) is None
    assert fault_of_death(stat(14, comm="python3"), ROOT, whole) is None  # came after the warm-up


def test_while_it_starts_only_its_own_processes_count() -> None:
    assert fault_of_death(stat(10, comm="sh"), ROOT, ()) is not None
    assert fault_of_death(stat(11, comm="VLLM::Worker_TP"), ROOT, ()) is not None
    assert fault_of_death(stat(12, comm="python3"), ROOT, ()) is None
