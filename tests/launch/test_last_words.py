"""Why an engine ended, in one line of its output.

outputs/ holds what real vLLMs printed from start to end: 0.32 on the CPU with a KV cache larger than the
machine (alone and with two workers), 0.26 on two H200s started by a program that forgot its main guard.
Folders are renamed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([CAUSE, POINTER], "(Worker_TP1 pid=2) torch.OutOfMemoryError: no memory"),
        ([CAUSE, "(EngineCore pid=3) Exception: WorkerProc failed. See stack trace for root cause.", POINTER],
         "(Worker_TP1 pid=2) torch.OutOfMemoryError: no memory"),
        (["(A pid=1) pydantic_core.ValidationError: 1 validation error for X",
          "(A pid=1)   Value error, no such file", "(A pid=1) INFO bye", POINTER],
         "(A pid=1) pydantic_core.ValidationError: 1 validation error for X Value error, no such file"),
        (["ERROR 11-30 15:44:58 [core.py:1] Exception: it is broken", POINTER], "Exception: it is broken"),
        # Nobody says why: the pointer is all there is.
        (["(A pid=1) WARNING error limit", POINTER], POINTER),
        # An error that points nowhere is the last word, whatever stands above it.
        ([CAUSE, "vllm serve: error: unrecognized arguments: --no-such"],
         "vllm serve: error: unrecognized arguments: --no-such"),
    ],
)  # fmt: skip
def test_a_pointer_is_followed(lines: list[str], said: str) -> None:
    assert last_words(lines) == said


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


def test_an_engine_found_running_is_asked_for_its_newest_lines_alone(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.path.write_text(f"{CAUSE}\n" + "INFO\n" * 60 + f"{POINTER}\n")
    assert log.last_words() == POINTER


def test_a_secret_before_the_start_of_the_engine_is_not_shown_by_half(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.hide(["first-half-second-half"])
    log.path.write_text("first-half-")
    log.begin()
    with log.path.open("a") as file:
        file.write("second-half" + "x" * TAIL_BYTES + "\nsecond error\n")
    assert "half" not in log.last_words()
