"""Runs `nodegate` command lines: in a process of their own, as a person or a script would, or in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent import cli

NODEGATE = Path(sys.executable).with_name("nodegate")


def nodegate(*words: str, timeout_s: float = 60.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end; stdin is empty."""
    return subprocess.run(
        [str(NODEGATE), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **environment},
    )


def in_process(capsys: pytest.CaptureFixture[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run one command line here: without the start of a process, for tests of what a command says."""
    capsys.readouterr()
    code = cli.run_command_line(list(words))
    said = capsys.readouterr()
    return subprocess.CompletedProcess(words, code, said.out, said.err)


def complaint(answer: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr of a command that could not run; fails for anything but that and exit 3."""
    assert answer.returncode == 3, f"exit {answer.returncode}\n{answer.stdout}\n{answer.stderr}"
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert answer.stderr.startswith("nodegate: "), answer.stderr
    assert "internal error" not in answer.stderr, answer.stderr
    return answer.stderr.strip()
