"""Why an engine ended, in one line of its output.

outputs/ holds what real vLLMs printed from start to end: 0.32 on the CPU with a KV cache larger than the
machine (alone and with two workers), 0.26 on two H200s started by a program that forgot its main guard.
Folders are renamed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.launch.crash_tail import crash_tail
from agent.launch.engine_log import TAIL_BYTES, EngineLog
from agent.launch.last_words import MAX_CHARS, last_words

OUTPUTS = Path(__file__).with_name("outputs")
POINTER = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
CAUSE = "(Worker_TP1 pid=2) ERROR 11-30 15:44:58 [executor.py:1063] torch.OutOfMemoryError: no memory"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "cpu-kv-cache",
            "(Worker pid=31067) ValueError: Available memory on node 0 (22.18/23.54",
        ),
        (
            "cpu-tp2-kv-cache",
            "(Worker_TP0 pid=31145) ValueError: Available memory on node 0 (21.76/",
        ),
        ("h200-no-main-guard", "(APIServer pid=1644) RuntimeError: An attempt has been made to start a new"),
    ],
)
def test_a_real_vllm_names_its_cause(name: str, said: str) -> None:
    found = last_words((OUTPUTS / f"{name}.log").read_text().splitlines())
    assert found.startswith(said) and len(found) <= MAX_CHARS


OOM = "(Worker_TP1 pid=2) torch.OutOfMemoryError: no memory"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([CAUSE, POINTER], OOM),
        ([CAUSE, "(Core pid=3) Exception: WorkerProc failed. See stack trace for root cause.", POINTER], OOM),
        ([CAUSE, "(EngineCore pid=3) ERROR 11-30 15:44:58 [x.py:1] Worker proc W-0 died unexpectedly"], OOM),
        # What a peer's end does to the others, and what Python says of objects at the end.
        ([CAUSE, "(Worker_TP5 pid=6) DistBackendError: NCCL error: remote process exited", POINTER], OOM),
        ([CAUSE, "(Worker_TP5 pid=6) RuntimeError: [gloo] Connection closed by peer [::1]:1", POINTER], OOM),
        ([CAUSE, "(EngineCore pid=3) RuntimeError: cancelled", POINTER], OOM),
        ([CAUSE, "Exception ignored in: <function X.__del__>", "Traceback (most recent call last):",
          '  File "x.py"', "AttributeError: 'NoneType' object has no attribute 'x'", POINTER], OOM),
        ([CAUSE, POINTER, "[rank5]:[W1130 x.cpp:1] Failed to check the flag, with error: Broken pipe",
          "frame #0: c10::Error::Error(c10::SourceLocation)"], OOM),
        # Other ways to name a process.
        (["(VllmWorker rank=1 pid=5) ERROR 11-30 15:44:58 [x.py:1] ValueError: a", POINTER],
         "(VllmWorker rank=1 pid=5) ValueError: a"),
        (["(EngineCore pid=3) (RayWorkerWrapper pid=144, ip=172.18.0.2) ValueError: a", POINTER],
         "(EngineCore pid=3) (RayWorkerWrapper pid=144, ip=172.18.0.2) ValueError: a"),
        (["[rank3]: ValueError: a", POINTER], "[rank3]: ValueError: a"),
        (["(A pid=1) ValueError: a", "(A pid=1) INFO:     [::1]:1 - \"POST /x\" 500 Internal Server Error"],
         "(A pid=1) ValueError: a"),
        (["(A pid=1) triton.runtime.errors.OutOfResources: out of shared memory", POINTER],
         "(A pid=1) triton.runtime.errors.OutOfResources: out of shared memory"),
        # SGLang.
        (["ValueError: a", "RuntimeError: Rank 3 scheduler died during initialization (exit code: -3)"],
         "ValueError: a"),
        (["ValueError: a", "Rank 0 scheduler is dead. Please check the error", "EOFError"], "ValueError: a"),
        # An exception's text may stand below it.
        (["(A pid=1) pydantic_core.ValidationError: 1 validation error for X", "(A pid=1) memory_utilization",
          "(A pid=1)   Input should be less", "(A pid=1)     For further information visit https://errors"],
         "(A pid=1) pydantic_core.ValidationError: 1 validation error for X memory_utilization "
         "Input should be less For further information visit https://errors"),
        (["(A pid=1) RuntimeError:", "(B pid=2) INFO hello", "(A pid=1)   it is broken", POINTER],
         "(A pid=1) RuntimeError: it is broken"),
        (["ERROR 11-30 15:44:58 [core.py:1] Exception: it is broken", POINTER], "Exception: it is broken"),
        # Nobody says why: the pointer is all there is.
        (["(A pid=1) WARNING 11-30 15:44:58 [x.py:1] error limit", POINTER], POINTER),
        # An error that points nowhere is the last word, whatever stands above it.
        ([CAUSE, "vllm serve: error: unrecognized arguments: --no-such"],
         "vllm serve: error: unrecognized arguments: --no-such"),
        (["RuntimeError: CUDA error: x", "CUDA kernel errors might be asynchronously reported"],
         "RuntimeError: CUDA error: x"),
        # Killed while it loaded: what it warned of at its start is no reason.
        (["WARNING 11-30 15:44:58 [x.py:1] failed to raise it with error x", "INFO loading"], "INFO loading"),
    ],
)  # fmt: skip
def test_a_pointer_is_followed(lines: list[str], said: str) -> None:
    assert last_words(lines) == said


@pytest.mark.parametrize("name", ["cpu-kv-cache", "cpu-tp2-kv-cache"])
def test_an_output_that_ends_early_names_it_too(name: str) -> None:
    """The agent reads as the first process dies, which is right after its cause, and ends all others."""
    lines = (OUTPUTS / f"{name}.log").read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if "ValueError: " in line)
    told = {last_words(lines[:length]) for length in range(first + 1, len(lines) + 1)}
    assert all("Available memory on node 0" in words for words in told), told


def test_the_cause_may_stand_far_above() -> None:
    frames = [f'(APIServer pid=1)   File "{number}"' for number in range(500)]
    assert last_words([CAUSE, *frames, POINTER]).startswith("(Worker_TP1 pid=2) torch.OutOfMemoryError")


def test_a_line_without_end_is_no_trouble() -> None:
    """Patterns that try every word of it would not be through in a day."""
    assert last_words(["A" + "Error" * 200_000 + "!", POINTER]) == POINTER


def test_the_engine_before_is_not_heard(tmp_path: Path) -> None:
    """Its cause stands above in the same file."""
    log = EngineLog(tmp_path / "a.log")
    log.path.write_text(f"{CAUSE}\n{POINTER}\n")
    log.begin()
    assert log.last_words() == ""
    with log.path.open("a") as file:
        file.write(f"INFO start\n{POINTER}\n")
    assert log.last_words() == POINTER
    assert len(log.tail(10)) == 4


def test_the_file_is_cut_while_the_engine_runs(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log", max_bytes=1000)
    log.path.write_text("x" * 900)
    log.begin()
    with log.path.open("a") as file:
        file.write("y" * 900)
    assert log.bound()
    log.path.write_text(f"{CAUSE}\n" + "z\n" * 900 + f"{POINTER}\n")
    assert log.last_words().startswith("(Worker_TP1 pid=2)")


def test_colours_hide_nothing(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    coloured = CAUSE.replace("(Worker_TP1 pid=2)", "\x1b[1;36m(Worker_TP1 pid=2)\x1b[0;0m")
    log.path.write_text(coloured.replace("ERROR", "\x1b[31mERROR\x1b[0m") + f"\n{POINTER}\n")
    assert log.last_words() == OOM
    assert log.own(0) == log.tail(0) == []


def test_an_engine_found_running_is_asked_for_its_newest_lines_alone(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.path.write_text(f"{CAUSE}\n" + "INFO\n" * 60 + f"{POINTER}\n")
    assert log.last_words() == POINTER


def test_the_first_words_of_an_engine_are_whole(tmp_path: Path) -> None:
    """Whatever was hidden or not ASCII before them."""
    log = EngineLog(tmp_path / "a.log")
    log.hide(["s" * 51])
    log.path.write_text("s" * 51 + "\u2588" * 40 + "\n")
    os.close(log.open())
    with log.path.open("a") as file:
        file.write("vllm serve: error: unrecognized arguments: --nope\n")
    assert log.last_words() == "vllm serve: error: unrecognized arguments: --nope"
    assert crash_tail(log) == ("vllm serve: error: unrecognized arguments: --nope",)


def test_no_half_of_a_secret_is_shown_where_the_file_ends_or_was_cut(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log", max_bytes=100)
    log.hide(["first-half-second-half"])
    log.path.write_text("error: bad key first-half-sec")
    assert log.last_words() == "error: bad key ***"
    log.path.write_text("nd-half error\n")
    assert log.last_words() == "*** error"


def test_a_cut_that_cannot_be_kept_is_a_cut_all_the_same(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log", max_bytes=600)
    log.path.write_text("x" * 500)
    log.begin()
    log.path.with_name("a.log.1").mkdir()
    with log.path.open("a") as file:
        file.write("y" * 500)
    with pytest.raises(OSError):
        log.bound()
    log.path.write_text(f"{CAUSE}\n" + "z\n" * 200 + f"{POINTER}\n")
    assert log.last_words() == OOM


def test_a_secret_before_the_start_of_the_engine_is_not_shown_by_half(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.hide(["first-half-second-half"])
    log.path.write_text("first-half-")
    log.begin()
    with log.path.open("a") as file:
        file.write("second-half" + "x" * TAIL_BYTES + "\nsecond error\n")
    assert "half" not in log.last_words()
