"""Workloads as processes: their output is bounded, all of them end, and none outlives whoever measures."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.errors import SourceUnavailable
from agent.sources import workload_process as module
from agent.sources.processes import processes
from agent.sources.workload_process import LiveWorkloads, ProcessWorkload

ENV = {"PATH": os.environ["PATH"]}
#: A worker with a child that leaves its session, as no worker of ours does.
FAMILY = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        print('grandchild', os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
print('parent', os.getpid(), flush=True)
time.sleep(600)
"""


def wait_for(probe: Callable[[], bool], patience_s: float = 60.0) -> None:
    until_s = time.monotonic() + patience_s
    while not probe():
        assert time.monotonic() < until_s, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def start() -> Iterator[Callable[[str], ProcessWorkload]]:
    begun: list[ProcessWorkload] = []

    def one(code: str) -> ProcessWorkload:
        workload = LiveWorkloads().start([sys.executable, "-I", "-S", "-c", code], ENV, None)
        assert isinstance(workload, ProcessWorkload)
        begun.append(workload)
        return workload

    yield one
    for workload in begun:
        workload.stop(30)


def heard(workload: ProcessWorkload, count: int) -> list[str]:
    lines: list[str] = []

    def enough() -> bool:
        lines.extend(workload.lines())
        return len(lines) >= count

    wait_for(enough)
    return lines


def alive(pid: int) -> bool:
    return any(stat.pid == pid and not stat.dead for stat in processes())


def test_lines_end_and_complaints(start: Callable[[str], ProcessWorkload]) -> None:
    workload = start(
        "import sys; print('{}'); print('half', end=''); sys.stderr.write('why\\n'); sys.exit(3)"
    )
    wait_for(lambda: workload.ended() is not None)
    end = workload.ended()
    assert end is not None and (end.status, end.errors) == (3, "why\n")
    assert workload.lines() == ["{}", "half"]
    assert workload.stop(10) == ()


def test_all_of_it_ends_even_what_left_its_session(start: Callable[[str], ProcessWorkload]) -> None:
    workload = start(FAMILY)
    pids = {line.split()[0]: int(line.split()[1]) for line in heard(workload, 2)}
    assert workload.stop(30) == ()
    assert not alive(pids["parent"]) and not alive(pids["grandchild"])


def test_too_much_output_is_refused(
    start: Callable[[str], ProcessWorkload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 50)
    workload = start("import time\nfor n in range(500): print(n)\nprint('', flush=True); time.sleep(600)")

    def refused() -> bool:
        try:
            workload.lines()
        except SourceUnavailable as cause:
            return "more output than a worker has" in str(cause)
        return False

    monkeypatch.setattr(ProcessWorkload, "note", lambda self: None)
    wait_for(lambda: workload._too_much != "" or workload.ended() is not None)
    assert refused()


def test_what_it_mapped_in_shared_memory_goes_with_it(start: Callable[[str], ProcessWorkload]) -> None:
    name = f"/dev/shm/nodegate-test-{os.getpid()}"
    workload = start(
        f"import mmap,time\nf=open('{name}','w+b'); f.truncate(4096); m=mmap.mmap(f.fileno(), 4096)\n"
        "print('mapped', flush=True); time.sleep(600)"
    )
    heard(workload, 1)
    workload.note()
    assert Path(name).exists()
    assert workload.stop(30) == ()
    assert not Path(name).exists()


def test_what_cannot_be_started() -> None:
    with pytest.raises(SourceUnavailable, match="/nowhere/python cannot be started: No such file"):
        LiveWorkloads().start(["/nowhere/python"], ENV, None)


def test_a_worker_ends_with_whoever_measures(tmp_path: Path) -> None:
    """The workers' own watch of their standard input, without torch."""
    folder = Path(module.__file__).parents[1] / "measure" / "workers"
    script = tmp_path / "waits.py"
    script.write_text(
        f"import sys, time; sys.path.insert(0, {str(folder)!r})\n"
        "import ranks\nprint(ranks.read_order()['x'], flush=True); time.sleep(600)\n"
    )
    workload = LiveWorkloads().start([sys.executable, "-B", str(script), json.dumps({"x": 7})], ENV, None)
    assert isinstance(workload, ProcessWorkload)
    assert heard(workload, 1) == ["7"]
    stdin = workload._child.stdin
    assert stdin is not None
    stdin.close()  # as the kernel does for a process that is killed
    wait_for(lambda: workload.ended() is not None)
    end = workload.ended()
    assert end is not None and end.status == -9
    workload.stop(10)
