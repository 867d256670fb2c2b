"""The runner: order, records, resuming, questions, a run that is called off, and what the daemon asks for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checklist_kit import Bench, soak_result
from pydantic import BaseModel

from agent.checklist import measure as seam
from agent.checklist.load import load_checklist
from agent.checklist.measure import Measure, MeasureContext, MeasureOutcome
from agent.checklist.model import Checklist
from agent.checklist.progress import progress_of
from agent.checklist.record import RunRecord
from agent.checklist.resume import refuse_to_resume, take_up, to_resume
from agent.checklist.run import Run
from agent.checklist.settle import fault_of
from agent.checklist.step_measure import SLACK_S
from agent.checklist.steps import CalledOff
from agent.errors import ConfigError
from agent.model import Verdict
from agent.profile_loader import load_profile

STEPS = """
  - {id: look, title: L, why: W, timeout_s: 60, on_fail: Look., check: [gpu.count]}
  - {id: test, title: T, why: W, timeout_s: 60, on_fail: Mend it., measure: try.it, params: {loops: 2}}
  - id: asked
    title: A
    why: W
    timeout_s: 60
    on_fail: Ask the cooling team.
    question: Does it flow?
    choices:
      - {answer: "yes", means: it does, verdict: PASS}
      - {answer: "no", means: it does not, verdict: FAIL}
  - {id: open, title: O, why: W, timeout_s: 60, on_fail: Read the log., gate: {soak_s: 180}}
"""
YES = {"asked": "yes"}


class TryParams(BaseModel):
    """Parameters of the test's own measured test."""

    loops: int = 1


class Tried:
    """A measured test whose end a test decides."""

    def __init__(self) -> None:
        self.outcomes: list[Any] = []
        self.contexts: list[MeasureContext] = []

    def __call__(self, context: MeasureContext, params: TryParams) -> MeasureOutcome:
        self.contexts.append(context)
        for loop in range(params.loops):
            context.keep("gpu_temperature", "gpu0", "C", 40.0 + loop)
        end = self.outcomes.pop(0) if self.outcomes else Verdict.PASS
        if callable(end):
            return end(context)  # type: ignore[no-any-return]
        if isinstance(end, Exception):
            raise end
        return MeasureOutcome(end, f"it was {end}", hint="Look closer.")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Tried:
    made = Tried()
    seam.measures()
    monkeypatch.setitem(seam._MEASURES, "try.it", Measure("try.it", "Try", TryParams, made))
    return made


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(tmp_path, **getattr(request, "param", {}))
    yield made
    made.close()


@pytest.fixture
def mine(tmp_path: Path, tried: Tried) -> Checklist:
    own = tmp_path / "own"
    own.mkdir()
    path = own / "mine.yaml"
    path.write_text(f"name: mine\ntitle: Mine\nwhy: W\nneeds: closed\nsteps:{STEPS}")
    return load_checklist(path)


def site(bench: Bench) -> None:
    """The daemon's profile names the folder of the test's checklist."""
    path = bench.folder / "site.yaml"
    path.write_text(json.dumps({"checklists_dir": str(bench.folder / "own")}))
    own = [file for file in bench.loaded.files if file.name in ("profile.yaml", "overlay.yaml")]
    bench.loaded = load_profile(path, overlays=own)


def go(
    bench: Bench, checklist: Checklist, record: RunRecord, answers: dict[str, str] | None = None
) -> RunRecord:
    return Run(bench.given(checklist, record, YES if answers is None else answers), bench.store).go()


def test_a_run_passes_and_ends_maintenance_after_a_soak(bench: Bench, mine: Checklist) -> None:
    site(bench)
    bench.daemon.enter_maintenance()
    record = go(bench, mine, bench.record(mine))
    assert record.verdict is Verdict.PASS, record
    assert bench.daemon.gates.maintenance is None and bench.daemon.states() == ["serving"]
    assert bench.daemon.asked_soak_s == [180.0]
    assert bench.daemon.notes.operator[-1][0] == "maintenance exit"
    assert record.run_id in bench.daemon.notes.operator[-1][1]
    kept = bench.store.read(record.run_id)
    assert kept == record and len(kept.curves[0].points) == 2
    assert oct((bench.store.folder / record.run_id / "run.json").stat().st_mode)[-4:] == "0640"
    told = bench.store.progress()
    assert told == progress_of(record) and told["verdict"] == "PASS" and told["done"] == told["total"] == 4


def test_a_failure_stops_the_run_and_names_the_step(bench: Bench, mine: Checklist, tried: Tried) -> None:
    bench.daemon.enter_maintenance("fan swap")
    tried.outcomes = [Verdict.FAIL]
    record = go(bench, mine, bench.record(mine))
    assert [step.verdict for step in record.steps] == [Verdict.PASS, Verdict.FAIL, None, None]
    assert record.verdict is Verdict.FAIL and record.steps[1].hint == "Mend it. Look closer."
    held = bench.daemon.gates.maintenance
    assert held is not None and held.reason == f"fan swap [run {record.run_id} failed at test: it was FAIL]"
    told = progress_of(record)
    assert (told["step"], told["verdict"]) == ("test", "FAIL")
    # Mended: it goes on there, and a second failure names the new run alone.
    tried.outcomes = [Verdict.UNKNOWN]
    take_up(record, mine, bench.clock.boot_id())
    go(bench, mine, record)
    assert [step.attempts for step in record.steps] == [1, 2, 0, 0] and record.verdict is Verdict.UNKNOWN
    held = bench.daemon.gates.maintenance
    assert held is not None and held.reason.count("[run ") == 1 and "UNKNOWN" in held.reason


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (RuntimeError("boom"), "the test broke: RuntimeError: boom"),
        (ConfigError("no torch"), "no torch"),
    ],
)
def test_a_test_that_breaks_is_unknown(
    bench: Bench, mine: Checklist, tried: Tried, end: Exception, words: str
) -> None:
    tried.outcomes = [end]
    record = go(bench, mine, bench.record(mine))
    assert (record.verdict, record.steps[1].summary) == (Verdict.UNKNOWN, words)


def test_a_test_that_goes_on_past_its_time_does_not_pass(bench: Bench, mine: Checklist, tried: Tried) -> None:
    def late(context: MeasureContext) -> MeasureOutcome:
        bench.clock.now_s = context.until_mono_s + SLACK_S + 1
        return MeasureOutcome(Verdict.PASS, "at last")

    tried.outcomes = [late]
    record = go(bench, mine, bench.record(mine))
    assert record.steps[1].verdict is Verdict.UNKNOWN
    assert record.steps[1].summary == "not done within 60 s: at last"


def test_a_test_that_ignores_its_end_is_told_to_end(
    bench: Bench, mine: Checklist, tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.checklist.step_measure.ENDS_WITHIN_S", 0.01)
    go_on = threading.Event()

    def deaf(context: MeasureContext) -> MeasureOutcome:
        bench.clock.now_s = context.until_mono_s + SLACK_S + 1
        go_on.wait(60)
        return MeasureOutcome(Verdict.PASS, "never heard")

    tried.outcomes = [deaf]
    record = go(bench, mine, bench.record(mine))
    go_on.set()
    assert record.steps[1].verdict is Verdict.UNKNOWN and "did not end" in record.steps[1].summary
    assert tried.contexts[0].cancelled()


def test_a_run_that_is_called_off_goes_on_with_the_same_step(
    bench: Bench, mine: Checklist, tried: Tried
) -> None:
    site(bench)
    bench.daemon.enter_maintenance()
    record = bench.record(mine)
    given = bench.given(mine, record, YES)

    def call_off(context: MeasureContext) -> MeasureOutcome:
        given.cancelled.set()
        assert context.cancelled()
        return MeasureOutcome(Verdict.UNKNOWN, "called off")

    tried.outcomes = [call_off]
    with pytest.raises(CalledOff):
        Run(given, bench.store).go()
    kept = bench.store.read(record.run_id)
    assert (kept.verdict, [step.verdict for step in kept.steps]) == (None, [Verdict.PASS, None, None, None])
    assert bench.daemon.gates.maintenance is not None
    again = to_resume(bench.store, mine)
    assert take_up(again, mine, bench.clock.boot_id()) == []
    assert go(bench, mine, again).verdict is Verdict.PASS
    assert [step.attempts for step in again.steps] == [1, 2, 1, 1] and again.resumed == 1
    # The points of the first try are gone with it.
    assert [len(curve.points) for curve in again.curves] == [2]


def test_after_a_reboot_all_but_answers_is_done_again(bench: Bench, mine: Checklist, tried: Tried) -> None:
    record = bench.record(mine)
    tried.outcomes = [Verdict.PASS]
    with pytest.raises(ConfigError, match="step asked asks: Does it flow"):
        go(bench, mine, record, {})
    assert take_up(record, mine, "another-boot") == ["look", "test"]
    assert record.boot_id == "another-boot"
    assert [step.verdict for step in record.steps] == [None, None, None, None]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"profile_hash": "other"}, "the profile has changed since"),
        ({"parts": {"gpu0": "GPU-other"}}, "the hardware has changed since: gpu0 was GPU-"),
        ({"definition": "other"}, "the checklist has changed since"),
        (
            {"shortened": ["load.duration_s 60 of 3600"]},
            "those of the checklist.*give the same --set, or begin",
        ),
        ({"started_wall_s": 1_800_000_000.0 + 100_000.0 + 90_000.0}, "left more than 24 h ago"),
        ({"started_wall_s": 5.0}, "the clock was set back"),
    ],
)
def test_what_was_proven_of_something_else_is_not_resumed(
    bench: Bench, mine: Checklist, change: dict[str, Any], words: str
) -> None:
    record = bench.record(mine)
    refuse_to_resume(record, record.model_copy())
    with pytest.raises(ConfigError, match=words):
        refuse_to_resume(record, record.model_copy(update=change))


def test_nothing_to_resume(bench: Bench, mine: Checklist) -> None:
    with pytest.raises(ConfigError, match="no run of mine to resume"):
        to_resume(bench.store, mine)
    record = bench.record(mine)
    record.verdict = Verdict.PASS
    bench.store.write(record, progress_of(record))
    with pytest.raises(ConfigError, match="has passed"):
        to_resume(bench.store, mine)
    (bench.store.folder / record.run_id / "run.json").write_text("{")
    with pytest.raises(ConfigError, match="garbled"):
        to_resume(bench.store, mine)


def test_a_soak_that_fails_enters_maintenance_again(bench: Bench, mine: Checklist) -> None:
    site(bench)
    bench.daemon.enter_maintenance()
    bench.daemon.soak = soak_result(("gpu.throttle gpu3: throttled",))
    record = go(bench, mine, bench.record(mine))
    assert record.verdict is Verdict.FAIL and "gpu.throttle gpu3" in record.steps[3].summary
    held = bench.daemon.gates.maintenance
    assert held is not None and f"run {record.run_id} failed at open" in held.reason


@pytest.mark.parametrize("bench", [{"overlay": {"mode": "manage"}}], indirect=True)
def test_an_engine_without_a_soak_of_its_own_is_no_proof(bench: Bench, mine: Checklist) -> None:
    site(bench)
    bench.daemon.enter_maintenance()
    bench.daemon.soak = None
    record = go(bench, mine, bench.record(mine))
    assert record.verdict is Verdict.UNKNOWN and bench.daemon.gates.maintenance is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"profile_hash": "other"}, "the profile is another one"),
        ({"boot_id": "other"}, "it is of another boot"),
        ({"parts": {"gpu0": "GPU-other"}}, "the hardware is another one"),
        ({"simulated": False}, "this node is simulated"),
        ({"definition": "other"}, "its steps are not those of the checklist mine"),
    ],
)
def test_the_daemon_looks_itself(bench: Bench, mine: Checklist, change: dict[str, Any], words: str) -> None:
    site(bench)
    bench.daemon.enter_maintenance()
    record = go(bench, mine, bench.record(mine, **change))
    assert record.verdict is Verdict.FAIL and words in record.steps[3].summary, record.steps[3]
    assert bench.daemon.gates.maintenance is not None and bench.daemon.states() == ["maintenance"]
    assert bench.daemon.asked_soak_s == []


def test_the_daemon_wants_fresh_steps_that_have_all_passed(
    bench: Bench, mine: Checklist, tried: Tried
) -> None:
    site(bench)
    bench.daemon.enter_maintenance()
    record = bench.record(mine)
    with pytest.raises(Exception, match="No such file"):
        bench.daemon.passed(record.run_id, 180)
    tried.outcomes = [Verdict.FAIL]
    go(bench, mine, record)
    with pytest.raises(Exception, match="step test is FAIL"):
        bench.daemon.passed(record.run_id, 180)
    with pytest.raises(Exception, match="not the id of a run"):
        bench.daemon.passed("../../etc/passwd", 180)
    assert bench.daemon.gates.maintenance is not None


def test_an_old_proof_is_refused(bench: Bench, mine: Checklist) -> None:
    site(bench)
    bench.daemon.enter_maintenance()
    record = bench.record(mine)
    sleep = bench.sleep
    given = bench.given(mine, record, YES)
    ask = given.ask

    def slow(step: str, text: str) -> Any:
        answer = ask(step, text)
        sleep(25 * 3600)
        return answer

    object.__setattr__(given, "ask", slow)
    Run(given, bench.store).go()
    assert record.verdict is Verdict.FAIL and "too old" in record.steps[3].summary


def test_a_record_that_leaves_steps_out_is_no_proof(bench: Bench, mine: Checklist) -> None:
    record = go(bench, mine, bench.record(mine))
    assert "not in maintenance" in " ".join(record.outcome) or record.verdict is not None
    assert fault_of(mine, record, 3) is None
    fewer = record.model_copy(update={"steps": record.steps[1:]})
    assert fault_of(mine, fewer, 2) == "its steps are not those of its checklist"
