"""The engine's log: bounded, shown without secrets."""

from __future__ import annotations

import os
from pathlib import Path

from agent.launch.engine_log import TAIL_BYTES, EngineLog


def test_it_is_bounded_while_the_engine_writes(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "logs" / "engine-a.log", max_bytes=1000)
    descriptor = log.open()
    try:
        for number in range(200):
            os.write(descriptor, f"line {number:04}\n".encode())
            log.bound()
        assert log.path.stat().st_size <= 1000
        older = log.path.with_name("engine-a.log.1").read_text()
        assert "".join([older, log.path.read_text()]).endswith("line 0198\nline 0199\n")
        assert log.tail(1) == ["line 0199"]
    finally:
        os.close(descriptor)


def test_without_a_file_there_is_nothing_to_show(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "no.log")
    assert log.tail(10) == [] and log.last_words() == ""
    assert not log.bound()


def test_secrets_and_control_characters_are_not_shown(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.path.write_text("token is s3cr3t!\n\x1b[31mred\x1b[0m\x07\ttext\n")
    log.hide(["s3cr3t!", "is"])  # a value of two characters would blot out words
    assert log.tail(10) == ["token is ***", "red \ttext"]
    assert log.tail(0) == []


def test_older_secrets_stay_hidden_and_none_uncovers_another(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.path.write_text("was old-key, is new-key and new-key-2\n")
    log.hide(["old-key"])
    log.hide(["new-key", "new-key-2"])
    assert log.tail(10) == ["was ***, is *** and ***"]


def test_last_words_prefer_an_error(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.path.write_text("INFO a\nERROR out of memory\nINFO bye\n\n")
    assert log.last_words() == "ERROR out of memory"
    log.path.write_text("INFO a\n" + "b" * 500 + "\n")
    assert log.last_words() == "b" * 197 + "..."


def test_the_older_part_is_bounded_too(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log", max_bytes=1000)
    log.path.write_bytes(b"old " * 5000 + b"new")  # what an engine can write between two looks
    assert log.bound()
    older = log.path.with_name("a.log.1").read_bytes()
    assert len(older) == 1000 and older.endswith(b"old new")
    assert log.path.stat().st_size == 0


def test_no_half_of_a_secret_is_shown_where_the_tail_begins(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "a.log")
    log.hide(["first-half-second-half"])
    log.path.write_text("first-half-second-half" + "x" * (TAIL_BYTES - 11))
    assert "half" not in "".join(log.tail(10))
