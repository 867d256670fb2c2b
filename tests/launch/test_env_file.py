"""Secrets from env_file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import LaunchError
from agent.launch.env_file import MAX_BYTES, read_env_file


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    """An env_file."""
    path = folder / "engine.env"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_lines_comments_and_quotes(tmp_path: Path) -> None:
    text = "# tokens\n\nHF_TOKEN=abc=def\nQUOTED='a b'\nDOUBLE=\"c\"\nEMPTY=\n"
    assert read_env_file(written(tmp_path, text)) == {
        "HF_TOKEN": "abc=def", "QUOTED": "a b", "DOUBLE": "c", "EMPTY": "",
    }  # fmt: skip


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777, 0o700])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(LaunchError, match=f"mode is {mode:04o}; run chmod 0600"):
        read_env_file(written(tmp_path, "A=b\n", mode))


@pytest.mark.parametrize("text", ["nonsense-squirrel\n", "1A=squirrel\n", "A B=squirrel\n", "=squirrel\n"])
def test_a_bad_line_is_named_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(LaunchError, match=r"engine.env:2: not a KEY=VALUE line") as refused:
        read_env_file(written(tmp_path, "A=b\n" + text))
    assert "squirrel" not in str(refused.value)


def test_what_is_no_small_text_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="not UTF-8"):
        read_env_file(written(tmp_path, b"A=\xff\n"))
    with pytest.raises(LaunchError, match="NUL"):
        read_env_file(written(tmp_path, b"A=x\0y\n"))
    with pytest.raises(LaunchError, match="larger than"):
        read_env_file(written(tmp_path, b"A=" + b"x" * MAX_BYTES))
    with pytest.raises(LaunchError, match="not a regular file"):
        read_env_file(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(LaunchError, match="not a regular file"):  # and it does not wait for a writer
        read_env_file(pipe)
