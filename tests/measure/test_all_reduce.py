"""nccl.all_reduce and nccl.all_reduce_nodes: what is a good result, and what each kind of bad one becomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fake_h200 import h200_profile
from measure_kit import Bench, PlayedWorkload, reduced, without_threads

from agent.measure import all_reduce as module
from agent.measure.attend import Attendance
from agent.measure.bandwidth import Expectation, bus_gb_s, span_name
from agent.measure.nccl_tests import read_nccl_tests
from agent.measure.place import Place
from agent.model import Verdict
from agent.sources.workload import WorkloadEnd

#: As all_reduce_perf prints it, with fewer blanks.
PERF = """\
# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 1073741824 step: 1048576(bytes) warmup iters: 1 iters: 20
#     size     count   type redop root   time  algbw  busbw #wrong   time  algbw  busbw #wrong
#      (B) (elements)                    (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)
  1073741824 268435456 float sum -1 3921.4 273.82 479.19      0 3930.2 273.20 478.11      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 478.65
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


def bench(*lines: str, end: WorkloadEnd | None = None, **given: Any) -> Bench:
    return Bench(workloads=[PlayedWorkload([[], [], [], list(lines)], end)], **given)


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert bus_gb_s(2, 2**30, 2**30 / 328e9) == pytest.approx(328.0)
    assert bus_gb_s(8, 1073741824, 3921.4e-6) == pytest.approx(479.19, abs=0.05)
    assert bus_gb_s(1, 2**30, 0.1) == 0


@pytest.mark.parametrize(
    ("slots", "name"), [([0, 1, 2], "gpu0-2"), ([4, 5, 6, 7], "gpu4-7"), ([0, 2], "gpu0,2"), ([3], "gpu3-3")]
)
def test_names_of_spans(slots: list[int], name: str) -> None:
    assert span_name(slots) == name


def test_a_good_result() -> None:
    run = bench(reduced())
    outcome = run.run("nccl.all_reduce")
    assert (outcome.verdict, outcome.summary) == (Verdict.PASS, "gpu0-7 328 GB/s (nccl 2.28.9)")
    (value,) = outcome.values
    assert (value.name, value.subject, value.value, value.unit) == ("bus_bandwidth", "gpu0-7", 328.0, "GB/s")
    assert value.expected == ">= 260"  # the platform's
    (argv,) = run.played.started
    assert json.loads(argv[-1])["gpus"] == 8
    assert run.workloads[0].stopped == 1


def test_each_nvlink_domain_by_itself() -> None:
    profile = h200_profile({"nvlink": {"domains": [[0, 1, 2, 3], [4, 5, 6, 7]]}})
    run = Bench(profile=profile, workloads=[PlayedWorkload([[reduced(world=4)]]) for _ in range(2)])
    outcome = run.run("nccl.all_reduce")
    assert [value.subject for value in outcome.values] == ["gpu0-3", "gpu4-7"]


@pytest.mark.parametrize(
    ("params", "profile", "expected", "note"),
    [
        ({}, {"nccl": {"min_bus_gb_s": 300}}, ">= 300", ""),
        ({"min_bus_gb_s": 100}, {"nccl": {"min_bus_gb_s": 300}}, ">= 100", ""),
        ({"size_mib": 64}, {}, None, "for messages of 256 MiB and more"),
        ({}, {"platform": "b300"}, None, "the profile has no nccl.min_bus_gb_s"),
    ],
)
def test_what_it_is_held_against(
    params: dict[str, Any], profile: dict[str, Any], expected: str | None, note: str
) -> None:
    least = profile.get("nccl", {}).get("min_bus_gb_s", None if "platform" in profile else 260)
    found = Expectation.of(params.get("min_bus_gb_s"), least, params.get("size_mib", 1024))
    assert (f">= {found.least_gb_s:g}" if found.least_gb_s else None) == expected
    assert note in found.note
    run = bench(reduced(), profile=h200_profile({"nccl": {"min_bus_gb_s": least}}))
    outcome = run.run("nccl.all_reduce", **params)
    assert outcome.verdict is Verdict.PASS  # only told, where there is nothing to hold it against
    assert outcome.values[0].expected == expected


@pytest.mark.parametrize(
    ("line", "end", "verdict", "words"),
    [
        (reduced(bus_gb_s=150.0), None, Verdict.FAIL, "150 GB/s (nccl 2.28.9), at least 260 GB/s wanted"),
        (reduced(right=False), None, Verdict.FAIL, "a sum over 8 GPUs came out wrong"),
        (reduced(right=None), None, Verdict.UNKNOWN, "no sum that was checked"),
        (reduced(bus_gb_s="fast"), None, Verdict.UNKNOWN, "the result has no bandwidth"),
        (reduced(bus_gb_s=0), None, Verdict.UNKNOWN, "the result has no bandwidth"),
        ('{"error": "ImportError: No module named torch"}', None, Verdict.UNKNOWN, "No module named torch"),
        ("NCCL WARN nonsense", WorkloadEnd(-9, ""), Verdict.UNKNOWN, "status -9 and no result: NCCL WARN"),
        ("{garbage", WorkloadEnd(1, "x\nRuntimeError: no NCCL\n"), Verdict.UNKNOWN, "RuntimeError: no NCCL"),
    ],
)
def test_bad_results_are_one_clear_line(
    line: str, end: WorkloadEnd | None, verdict: Verdict, words: str
) -> None:
    outcome = bench(line, end=end).run("nccl.all_reduce")
    assert outcome.verdict is verdict
    assert words in outcome.summary and "\n" not in outcome.summary


def test_a_worker_that_hangs_is_ended_at_the_steps_end() -> None:
    run = bench(until_s=40)
    outcome = run.run("nccl.all_reduce")
    assert outcome.verdict is Verdict.UNKNOWN
    assert "not done when the step's time was over" in outcome.summary
    assert run.workloads[0].stopped == 1 and run.turns <= 42


def test_what_survives_its_end_is_told() -> None:
    run = bench(reduced())
    run.workloads[0].survivors = ("process 7 (python, state D)",)
    outcome = run.run("nccl.all_reduce")
    assert outcome.verdict is Verdict.UNKNOWN
    assert "SIGKILL does not end process 7 (python, state D); reboot the node" in outcome.summary


def grows(path: str, value: Any) -> Callable[[Bench], Callable[[int], None]]:
    def of(run: Bench) -> Callable[[int], None]:
        return lambda turn: run.node.set(path, value) if turn == 2 else None

    return of


@pytest.mark.parametrize(
    ("path", "value", "check"),
    [
        ("nvml.gpus.2.nvlink_errors.replay_errors", [4, *[3] * 17], "nvlink.errors"),
        ("nvml.gpus.2.nvlink_errors.crc_errors", [8, *[7] * 17], "nvlink.errors"),  # a warning while serving
        ("nvml.gpus.5.pcie_errors.fatal", 1, "gpu.pcie_errors"),
    ],
)
def test_errors_that_grow_meanwhile_fail_it(path: str, value: Any, check: str) -> None:
    run = bench(reduced())
    run.each = grows(path, value)(run)
    outcome = run.run("nccl.all_reduce")
    assert outcome.verdict is Verdict.FAIL, outcome.summary
    assert check in [finding.check for finding in outcome.findings if finding.verdict is Verdict.FAIL]
    assert outcome.hint


def test_never_beside_an_engine() -> None:
    run = bench(reduced())
    run.node.set("nvml.gpus.6.processes.pids", [4711])
    outcome = run.run("nccl.all_reduce")
    assert outcome.verdict is Verdict.UNKNOWN and not run.played.started
    assert outcome.summary == "gpu6 is in use by process 4711: nothing was measured"
    assert "maintenance" in outcome.hint
    run.node.set("nvml.gpus.6.processes.pids", {"error": "NOT_SUPPORTED"})
    outcome = run.run("nccl.all_reduce")
    assert outcome.verdict is Verdict.UNKNOWN and "whether the GPUs are free is not known" in outcome.summary


def test_called_off() -> None:
    run = bench(cancel_at=2)
    outcome = run.run("nccl.all_reduce")
    assert (outcome.verdict, outcome.summary) == (Verdict.UNKNOWN, "gpu0-7: called off")
    assert run.workloads[0].stopped == 1


def test_a_node_without_two_gpus_and_a_slot_that_is_not_there() -> None:
    assert bench().run("nccl.all_reduce", gpus=[3]).verdict is Verdict.SKIP
    assert "no GPU slot 9" in bench().run("nccl.all_reduce", gpus=[0, 9]).summary


def test_no_engine_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch, place=False)
    outcome = bench().run("nccl.all_reduce")
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.summary == (
        "nothing was measured: glm: no program vllm in the PATH; "
        "all_reduce_perf of nccl-tests is not installed either"
    )
    assert "role engine" in outcome.hint


def test_by_nccl_tests_where_no_engine_environment_is(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch, place=False)
    place = Place("all_reduce_perf", ("all_reduce_perf",), {}, None)
    monkeypatch.setattr(module, "nccl_tests_place", lambda *given: place)
    outcome = bench(*PERF.splitlines(), end=WorkloadEnd(0, "")).run("nccl.all_reduce")
    assert (outcome.verdict, outcome.summary) == (Verdict.PASS, "gpu0-7 478.1 GB/s (all_reduce_perf)")
    wrong = PERF.replace("479.19      0", "479.19     12")
    assert (
        "came out wrong" in bench(*wrong.splitlines(), end=WorkloadEnd(0, "")).run("nccl.all_reduce").summary
    )
    broken = bench(*PERF.splitlines(), end=WorkloadEnd(1, "NCCL failure")).run("nccl.all_reduce")
    assert broken.verdict is Verdict.UNKNOWN and "NCCL failure" in broken.summary


def test_a_table_without_rows_is_no_result() -> None:
    found = Attendance(status=0)
    found.reports.take(["# nothing here", "1 2 3"])
    read_nccl_tests(found, 8)
    assert found.reports.done is None


def test_on_a_replayed_node_the_folder_tells() -> None:
    run = Bench(simulated=True, recorded={"nccl.all_reduce": {"bus_gb_s": 328.0}})
    outcome = run.run("nccl.all_reduce")
    assert (outcome.verdict, outcome.summary) == (Verdict.PASS, "gpu0-7 328 GB/s (SIMULATED)")
    outcome = Bench(simulated=True).run("nccl.all_reduce")
    assert outcome.verdict is Verdict.UNKNOWN and "records nothing of nccl.all_reduce" in outcome.summary


MEMBERS = [
    {"node": "a", "address": "10.0.0.1", "data_address": "10.1.0.1"},
    {"node": "b", "address": "10.0.0.2"},
]


def grouped(rank: int, **more: Any) -> Any:
    group = {"rank": rank, "members": MEMBERS, "key_file": "/etc/nodegate/key", "master_port": 29777}
    return h200_profile({"node": MEMBERS[rank]["node"], "engines": {"glm": {"group": group}}, **more})


def test_nodes_meet_at_the_heads_data_address() -> None:
    run = bench(reduced(world=8, nodes=2, bus_gb_s=44.0), profile=grouped(1))
    outcome = run.run("nccl.all_reduce_nodes", rendezvous_s=120)
    assert outcome.verdict is Verdict.PASS, outcome.summary
    assert "the profile has no nccl.min_nodes_bus_gb_s to hold it against" in outcome.summary
    order = json.loads(run.played.started[0][-1])
    assert (order["host"], order["port"], order["node"], order["nodes"]) == ("10.1.0.1", 29777, 1, 2)
    assert (order["gpus"], order["rendezvous_s"]) == (4, 120)


@pytest.mark.parametrize(
    ("line", "verdict", "words"),
    [
        (
            '{"error": "RuntimeError: node 1 has not come within 120 s"}',
            Verdict.UNKNOWN,
            "node b has not come",
        ),
        (reduced(bus_gb_s=9.0), Verdict.FAIL, "9 GB/s (nccl 2.28.9), at least 40 GB/s wanted"),
    ],
)
def test_nodes_that_are_late_or_slow(line: str, verdict: Verdict, words: str) -> None:
    run = bench(line, profile=grouped(0, nccl={"min_nodes_bus_gb_s": 40}))
    outcome = run.run("nccl.all_reduce_nodes", rendezvous_s=120)
    assert outcome.verdict is verdict and words in outcome.summary
    assert outcome.hint


def test_roce_counters_that_grow_fail_the_nodes() -> None:
    run = bench(reduced(), profile=grouped(0))
    counter = "sys/class/infiniband/mlx5_1/ports/1/hw_counters/local_ack_timeout_err"
    before = int(run.node.data["files"][counter])

    def grow(turn: int) -> None:
        run.node.data["files"][counter] = str(before + 50 * turn)

    run.each = grow
    outcome = run.run("nccl.all_reduce_nodes")
    assert outcome.verdict is Verdict.FAIL
    assert ("roce.errors", "mlx5_1/1") in [(each.check, each.subject) for each in outcome.findings]


def test_a_node_that_is_in_no_group() -> None:
    assert bench().run("nccl.all_reduce_nodes").verdict is Verdict.SKIP
