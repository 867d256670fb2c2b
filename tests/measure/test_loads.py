"""load.gpu and load.engine: what ends a load, what fails it, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from fake_h200 import h200_profile
from measure_kit import Bench, PlayedWorkload, loaded_lines, without_threads

from agent.errors import SourceTimeout, SourceUnavailable
from agent.launch import soak
from agent.measure import attend, engine_load
from agent.measure.throughput import Throughput
from agent.model import Verdict
from agent.sources.engine import Completion, CompletionRequest
from agent.sources.workload import WorkloadEnd


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


def bench(seconds: int = 40, *, end: WorkloadEnd | None = None, lines: Any = None, **given: Any) -> Bench:
    return Bench(workloads=[PlayedWorkload(lines or loaded_lines(seconds), end)], **given)


def at(path: str, value: Any, since: int, until: int = 10_000) -> Callable[[Bench], None]:
    """The value from one turn to another, what was there before at all others."""

    def on(run: Bench) -> None:
        gpu, group, name = path.split(".")
        values = run.node.data["nvml"]["gpus"][int(gpu)][group]
        before = values[name]
        run.each = lambda turn: run.node.set(f"nvml.gpus.{path}", value if since <= turn < until else before)

    return on


def test_a_healthy_load_passes_with_curves_and_values() -> None:
    run = bench()
    outcome = run.run("load.gpu", duration_s=30)
    assert outcome.verdict is Verdict.PASS, outcome.summary
    assert outcome.summary == "30 s of full load by the Python of glm, hottest GPU 37 C"
    assert {key[:2] for key in run.curves if key[1] == "gpu3"} == {
        ("gpu_temperature", "gpu3"), ("gpu_memory_temperature", "gpu3"), ("gpu_sm_clock", "gpu3"),
        ("gpu_power", "gpu3"), ("gpu_throughput", "gpu3"),
    }  # fmt: skip
    assert len(run.curves["gpu_temperature", "gpu3", "C"]) >= 15
    assert ("coolant_inlet", "node", "C") in run.curves
    rates = [value for value in outcome.values if value.name == "throughput"]
    assert [value.subject for value in rates] == [f"gpu{gpu}" for gpu in range(8)]
    assert rates[0].value == 700.0 and run.workloads[0].stopped == 1


@pytest.mark.parametrize(
    ("change", "params", "check", "words"),
    [
        (at("3.power.event_reasons", 0x40, 9, 11), {}, "load.throttle", "throttled: event reasons 0x40"),
        (at("3.slowdowns.hw_brake_ns", 250_000_000, 9), {}, "load.throttle", "power brake for 0.25 s"),
        (at("3.power.event_reasons", 0x40, 9), {"no_throttle": False}, "gpu.throttle", "hardware thermal"),
        (at("3.thermal.margin_c", 2, 9), {"no_throttle": False}, "gpu.thermal_margin", "only 2 C"),
        (at("3.thermal.temperature_c", 79, 9), {"max_temperature_c": 78}, "load.temperature", "79 C under"),
        (at("3.nvlink_errors.replay_errors", [9] * 18, 5), {}, "nvlink.errors", "replay"),
        (at("3.identity.error", "GPU_IS_LOST", 9), {}, "gpu.lost", "GPU_IS_LOST"),
    ],
)
def test_a_fault_of_the_hardware_ends_the_load_at_once(
    change: Callable[[Bench], None], params: dict[str, Any], check: str, words: str
) -> None:
    run = bench(600)
    run.node.data["nvml"]["gpus"][3]["identity"].setdefault("error", None)
    change(run)
    outcome = run.run("load.gpu", duration_s=90, **params)
    assert outcome.verdict is Verdict.FAIL, outcome.summary
    told = [each for each in outcome.findings if each.check == check and each.subject == "gpu3"]
    assert told and words in told[0].summary
    assert outcome.summary.startswith("gpu3: ") and outcome.hint
    assert run.workloads[0].stopped == 1 and run.turns < 60


def test_one_moment_of_throttling_is_let_pass_where_it_may() -> None:
    run = bench(200)
    at("3.power.event_reasons", 0x40, 9, 10)(run)
    assert run.run("load.gpu", duration_s=30, no_throttle=False).verdict is not Verdict.FAIL


def test_a_slow_clock_of_a_busy_gpu_whatever_its_reason() -> None:
    run = bench(200)
    run.node.set("nvml.gpus.5.power.gpu_utilization_percent", 100)
    run.node.set("nvml.gpus.5.power.event_reasons", 0x4)  # a power limit that somebody has lowered
    at("5.power.sm_clock_mhz", 900, 1)(run)
    outcome = run.run("load.gpu", duration_s=120)
    assert outcome.verdict is Verdict.FAIL
    assert outcome.summary == "gpu5: busy at 900 of 1980 MHz, at least 1188 MHz wanted"


def test_a_temperature_that_rises_at_steady_power() -> None:
    """Incident 6 before any threshold: a slowdown is near long before it comes."""
    run = bench(800)
    for gpu in range(8):
        run.node.set(f"nvml.gpus.{gpu}.power.draw_w", 690.0)

    def warmer(turn: int) -> None:
        run.node.set("nvml.gpus.2.thermal.temperature_c", 40 + turn // 10)
        run.node.set("nvml.gpus.2.thermal.margin_c", 49 - turn // 10)

    run.each = warmer
    outcome = run.run("load.gpu", duration_s=700)
    assert outcome.verdict is Verdict.FAIL
    (told,) = [
        each for each in outcome.findings if each.check == "gpu.thermal_trend" and each.verdict == "FAIL"
    ]
    assert told.subject == "gpu2" and "slows down in about" in told.summary
    assert run.node.data["nvml"]["gpus"][2]["thermal"]["margin_c"] > 5  # no threshold was reached


@pytest.mark.parametrize(
    ("lines", "verdict", "words"),
    [
        (loaded_lines(60, tflops=lambda gpu, at: 700 if gpu != 6 or at < 20 else 420), Verdict.FAIL,
         "gpu6: throughput fell by 40 %"),
        (loaded_lines(60, wrong=lambda gpu, at: int(gpu == 1 and at > 9)), Verdict.FAIL,
         "gpu1: the same product came out differently 1 times"),
        (loaded_lines(60, tflops=lambda gpu, at: 560 if gpu == 4 else 700), Verdict.WARN,
         "gpu4: 560 TFLOP/s where the others give 700"),
        (loaded_lines(60, 7), Verdict.UNKNOWN, "1 of 8 GPUs have not told their throughput"),
        (loaded_lines(60, tflops=lambda gpu, at: "nan"), Verdict.UNKNOWN, "8 of 8 GPUs have not told"),
    ],
)  # fmt: skip
def test_what_the_worker_reports(lines: Any, verdict: Verdict, words: str) -> None:
    outcome = bench(lines=lines).run("load.gpu", duration_s=45)
    assert outcome.verdict is verdict, outcome.summary
    assert words in outcome.summary


@pytest.mark.parametrize(
    ("script", "end", "words"),
    [
        (
            [[], [], ['{"gpu": 2, "error": "OutOfMemoryError: CUDA out of memory"}']],
            None,
            "CUDA out of memory",
        ),
        ([["garbage"], []], WorkloadEnd(-11, ""), "ended with status -11 and no result: garbage"),
        ([[], []], WorkloadEnd(1, "ModuleNotFoundError: No module named 'torch'"), "No module named 'torch'"),
        ([*loaded_lines(3), ['{"done": true}']], None, "the load ended by itself after"),
        ([[]], None, "the worker has not begun within 300 s"),
    ],
)
def test_a_worker_that_fails_is_one_clear_line_and_no_pass(script: Any, end: Any, words: str) -> None:
    run = bench(lines=script, end=end)
    outcome = run.run("load.gpu", duration_s=400)
    assert outcome.verdict is Verdict.UNKNOWN, outcome.summary
    assert words in outcome.summary and "\n" not in outcome.summary
    assert run.workloads[0].stopped == 1


def test_a_worker_that_cannot_be_started() -> None:
    outcome = Bench().run("load.gpu", duration_s=5)
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.summary == "python cannot be started: No such file or directory: nothing was measured"


def test_called_off_ends_it_in_one_turn() -> None:
    run = bench(600, cancel_at=20)
    outcome = run.run("load.gpu", duration_s=500)
    assert outcome.verdict is Verdict.UNKNOWN and outcome.summary.startswith("called off after 1")
    assert run.turns == 20 and run.workloads[0].stopped == 1


def test_readings_that_hang_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run, looks = bench(100), []

    async def hangs(function: Callable[[], Any], deadline_s: float) -> Any:
        looks.append(function)
        if len(looks) > 6:
            raise TimeoutError
        return function()

    monkeypatch.setattr(attend, "in_spare_thread", hangs)
    outcome = run.run("load.gpu", duration_s=50)
    assert outcome.verdict is Verdict.UNKNOWN
    assert "the hardware's readings gave no answer in 60 s" in outcome.summary


def test_missing_evidence_is_no_pass() -> None:
    run = bench(100)
    at("3.power.event_reasons", {"error": "TIMEOUT"}, 20)(run)
    outcome = run.run("load.gpu", duration_s=30)
    assert outcome.verdict is Verdict.UNKNOWN and "gpu.throttle gpu3" in outcome.summary


def test_one_engines_gpus_and_an_engine_that_is_not_there() -> None:
    run = bench(lines=loaded_lines(40, 4))
    outcome = run.run("load.gpu", duration_s=10, engine="kimi")
    assert {value.subject for value in outcome.values} == {"gpu4", "gpu5", "gpu6", "gpu7"}
    assert "no engine opus; it has: glm, kimi" in bench().run("load.gpu", duration_s=1, engine="opus").summary


def test_a_replayed_node_is_looked_at_and_no_load_is_started() -> None:
    run = Bench(simulated=True)
    outcome = run.run("load.gpu", duration_s=20)
    assert outcome.verdict is Verdict.PASS and "SIMULATED load" in outcome.summary
    run = Bench(simulated=True)
    at("3.power.event_reasons", 0x40, 5)(run)
    assert run.run("load.gpu", duration_s=20).verdict is Verdict.FAIL


def test_a_gpu_that_is_cold_at_first_is_no_fall() -> None:
    seen = Throughput()
    for second in range(1, 61):
        seen.take("gpu0", {"at_s": second, "tflops": 700 - min(second, 40) * 0.8, "wrong": 0})
    assert seen.fallen(15.0) == [] and seen.behind() == [] and seen.take("gpu0", {"tflops": True}) is None


class FakeClient:
    """An engine that answers, until it does not."""

    says = '{"version": "1+SIMULATED"}'
    answers: ClassVar[list[Any]] = []

    def __init__(self, *given: Any, **more: Any) -> None:
        pass

    async def version(self, deadline_s: float) -> str:
        if not self.says:
            raise SourceUnavailable("/version cannot be reached")
        return self.says

    async def models(self, deadline_s: float) -> list[str]:
        return ["glm"]

    async def tokenize(self, *given: Any) -> list[int]:
        return [1, 2, 3]

    async def complete(self, request: CompletionRequest, deadline_s: float) -> Completion:
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else Completion(200, " x", "length", 64)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    async def now(function: Callable[[], Any], deadline_s: float) -> Any:
        return function()

    monkeypatch.setattr(engine_load, "EngineClient", FakeClient)
    monkeypatch.setattr(engine_load, "TURN_S", 0.0)
    monkeypatch.setattr(soak, "SAMPLE_S", 0.0)
    monkeypatch.setattr(soak, "in_spare_thread", now)
    monkeypatch.setattr(FakeClient, "answers", [])
    return FakeClient


def test_requests_through_an_engine(client: type[FakeClient]) -> None:
    run = Bench()
    outcome = run.run("load.engine", engine="glm", duration_s=30, concurrent=2)
    assert outcome.verdict is Verdict.PASS, outcome.summary
    assert "requests through the engine, " in outcome.summary and "completions" in outcome.summary
    assert ("gpu_power", "gpu0", "W") in run.curves and ("gpu_power", "gpu5", "W") not in run.curves


def test_an_engine_that_fails_under_load(client: type[FakeClient]) -> None:
    client.answers = [SourceTimeout("no answer in 300 s")]
    outcome = Bench().run("load.engine", engine="glm", duration_s=30)
    assert outcome.verdict is Verdict.FAIL
    assert outcome.summary == "engine:glm: a request failed: no answer in 300 s"
    assert "Look at the engine" in outcome.hint


def test_hardware_that_fails_under_an_engines_load(client: type[FakeClient]) -> None:
    run = Bench()
    at("1.power.event_reasons", 0x40, 5)(run)
    outcome = run.run("load.engine", engine="glm", duration_s=60)
    assert outcome.verdict is Verdict.FAIL and outcome.summary.startswith("gpu1: ")


def test_an_engines_load_is_called_off(client: type[FakeClient]) -> None:
    outcome = Bench(cancel_at=5).run("load.engine", engine="glm", duration_s=60)
    assert outcome.verdict is Verdict.UNKNOWN and "called off" in outcome.summary


def test_each_engine_where_none_is_named(client: type[FakeClient]) -> None:
    outcome = Bench().run("load.engine", duration_s=5)
    assert outcome.verdict is Verdict.PASS
    assert outcome.summary.startswith("glm: ") and "; kimi: " in outcome.summary
    client.answers = [SourceTimeout("late")]
    outcome = Bench().run("load.engine", duration_s=5)
    assert outcome.verdict is Verdict.FAIL and "Look at the engine" in outcome.hint
    none = Bench().run("load.engine", engine="opus", duration_s=5)
    assert none.verdict is Verdict.UNKNOWN and "no engine opus; it has: glm, kimi" in none.summary


@pytest.mark.parametrize(
    ("says", "words"), [("1+SIMULATED", "requests through"), ("0.32", "no SIMULATED engine")]
)
def test_on_a_replayed_node_only_a_simulated_engine_is_asked(
    client: type[FakeClient], monkeypatch: pytest.MonkeyPatch, says: str, words: str
) -> None:
    monkeypatch.setattr(FakeClient, "says", says)
    outcome = Bench(simulated=True, profile=h200_profile()).run("load.engine", engine="glm", duration_s=10)
    assert outcome.verdict is Verdict.PASS, outcome.summary
    assert words in outcome.summary and "SIMULATED" in outcome.summary
