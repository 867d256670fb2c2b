"""The workers of measured tests in a real engine's Python: gloo and the CPU in place of NCCL and GPUs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from vllm_rig import VENV

from agent.measure.bandwidth import bus_gb_s
from agent.measure.place import WORKERS
from agent.measure.reports import Reports
from agent.sources.workload_process import LiveWorkloads, ProcessWorkload

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

#: Imports of torch in several processes at once, on two busy cores.
PATIENCE_S = 300.0
SMALL = {"size_mib": 2, "iterations": 3, "backend": "gloo", "limit_s": PATIENCE_S, "rendezvous_s": 200}
ENV = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def started(worker: str, order: dict[str, Any]) -> ProcessWorkload:
    argv = [str(VENV / "bin" / "python"), "-B", "-u", str(WORKERS / worker), json.dumps(order)]
    workload = LiveWorkloads().start(argv, ENV, None)
    assert isinstance(workload, ProcessWorkload)
    return workload


def said(*workloads: ProcessWorkload) -> list[Reports]:
    """What each says until all have ended; nothing of them is left."""
    until_s = time.monotonic() + PATIENCE_S
    reports = [Reports() for _ in workloads]
    try:
        while any(workload.ended() is None for workload in workloads):
            assert time.monotonic() < until_s, "a worker hangs"
            time.sleep(0.1)
        for workload, report in zip(workloads, reports, strict=True):
            report.take(workload.lines())
    finally:
        assert [left for workload in workloads for left in workload.stop(30)] == []
    return reports


def test_two_processes_reduce_rightly_and_reckon_as_nccl_tests_does() -> None:
    before = set(Path("/dev/shm").iterdir())
    (report,) = said(started("all_reduce.py", {"gpus": 2, **SMALL}))
    assert report.error == "" and report.done is not None
    done = report.done
    assert (done["backend"], done["world"], done["right"], done["bytes"]) == ("gloo", 2, True, 2 * 2**20)
    assert done["bus_gb_s"] == pytest.approx(bus_gb_s(2, done["bytes"], done["seconds_each"]))
    assert not [path for path in set(Path("/dev/shm").iterdir()) - before if "sem.mp" in path.name]


def test_two_nodes_meet_with_gpus_of_different_number() -> None:
    place = {"host": "127.0.0.1", "port": 29787, "nodes": 2}
    head = started("all_reduce.py", {"gpus": 1, "node": 0, **place, **SMALL})
    other = started("all_reduce.py", {"gpus": 2, "node": 1, **place, **SMALL})
    for report in said(head, other):
        assert report.error == "" and report.done is not None
        assert (report.done["world"], report.done["nodes"], report.done["right"]) == (3, 2, True)


def test_nodes_that_do_not_fit_or_do_not_come() -> None:
    place = {"host": "127.0.0.1", "port": 29788, "nodes": 2, "gpus": 1}
    head = started("all_reduce.py", {**SMALL, "node": 0, **place})
    other = started("all_reduce.py", {**SMALL, "node": 1, **place, "iterations": 4})
    for report in said(head, other):
        assert "runs another test" in report.error
    (alone,) = said(started("all_reduce.py", {**SMALL, "node": 0, **place, "rendezvous_s": 3}))
    assert alone.error == "RuntimeError: node 1 has not come within 3 s"


def test_a_load_reports_each_second_and_ends() -> None:
    order = {"gpus": 2, "size": "small", "device": "cpu", "duration_s": 4, "limit_s": PATIENCE_S}
    workload = started("gpu_load.py", order)
    until_s, told = time.monotonic() + PATIENCE_S, []
    reports = Reports()
    while reports.done is None and not reports.error:
        assert time.monotonic() < until_s, "the worker hangs"
        told += reports.take(workload.lines())
        time.sleep(0.1)
    assert reports.error == "" and workload.stop(30) == ()
    assert {report["gpu"] for report in told} == {0, 1}
    assert all(report["wrong"] == 0 and report["at_s"] > 0 for report in told)
