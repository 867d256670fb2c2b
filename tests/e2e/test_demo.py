"""`nodegate demo` as a person runs it, piped: what it tells, how it ends, and that nothing is left of it."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_words import NODEGATE
from daemon_rig import wait_until

PATIENCE_S = 100.0
#: A fault at once after the open gate, and its end.
SCENARIO = """
name: short
steps:
  - at_s: 0.5
    say: an NVLink of gpu5 drops
    set: {nvml.gpus.5.nvlink.states.7: false, nvml.gpus.5.nvlink.speeds_mb_s.7: 0}
  - at_s: 12
    say: it is back
    reset: [nvml.gpus.5.nvlink]
"""


class Terminal:
    """The demo's output as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.text = ""

    def read_until(self, wanted: str) -> re.Match[str]:
        """Read on until a pattern has been told."""
        assert self.process.stdout is not None
        until_s = time.monotonic() + PATIENCE_S
        while (found := re.search(wanted, self.text)) is None:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until_s - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert piece, f"no {wanted!r} in:\n{self.text}"
            self.text += piece.decode()
        return found

    def read_to_end(self) -> int:
        """Read the rest; the exit code."""
        rest, _ = self.process.communicate(timeout=PATIENCE_S)
        self.text += rest.decode()
        return self.process.returncode


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, which pytest's own is not: the path of a Unix socket has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="ng-", dir="/tmp") as name:
        yield Path(name)


@contextmanager
def demo(folder: Path, *words: str) -> Iterator[Terminal]:
    """Run the demo with a temporary folder of its own, and see that nothing is left of it."""
    process = subprocess.Popen(
        [str(NODEGATE), "demo", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        yield Terminal(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=30)
    assert list(folder.iterdir()) == []


def _group_is_gone(ports: set[str]) -> bool:
    """Whether no process has one of these ports on its command line any more."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = set((entry / "cmdline").read_bytes().decode(errors="replace").split("\0"))
        except OSError:
            continue
        if "agent.launch.embedded_engine" in words and words & ports:
            return False
    return True


def test_a_fault_closes_and_reopens_the_gate(tmp_path: Path, folder: Path) -> None:
    scenario = tmp_path / "short.yaml"
    scenario.write_text(SCENARIO)
    with demo(folder, "--scenario", str(scenario)) as terminal:
        terminal.read_until(r"preflight: \d+ checks, \d+ results: \d+ PASS")
        terminal.read_until(r"warming -> serving +/readyz 200, agent check `up ready 100%")
        words = terminal.read_until(r"(?m)^ask it +(.+)$")[1].split()
        asked = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert "main" in asked.stdout, asked.stderr
        terminal.read_until(r"--- an NVLink of gpu5 drops ---")
        terminal.read_until(r"serving -> failed +/readyz 503, agent check `down #nvlink\.links")
        terminal.read_until(r"why +nvlink\.links gpu5: .*\n.* do +\S+")
        terminal.read_until(r"--- it is back ---")
        terminal.read_until(r"failed -> serving +/readyz 200")
        terminal.process.send_signal(signal.SIGINT)  # it would go on for some seconds
        assert terminal.read_to_end() == 0
    assert terminal.text.startswith("SIMULATED: these readings come from the node folder h200-roce, not")
    assert "all of this was SIMULATED" in terminal.text
    assert "\x1b" not in terminal.text
    assert "Traceback" not in terminal.text
    turns = re.findall(r"^\d+\.\d s +main +(opened|closed)", terminal.text, re.MULTILINE)
    assert turns == ["opened", "closed", "opened", "closed"]


@pytest.mark.parametrize("moment", [r"status page", r"warming -> serving"])
def test_ctrl_c_ends_it_at_any_moment(folder: Path, moment: str) -> None:
    with demo(folder) as terminal:
        ports = {terminal.read_until(r"agent check 127\.0\.0\.1:(\d+)")[1]}
        terminal.read_until(moment)
        ports |= set(re.findall(r"127\.0\.0\.1:(\d+)", terminal.text))
        terminal.process.send_signal(signal.SIGINT)
        code = terminal.read_to_end()
    assert code in (0, 1, 130), terminal.text
    assert "Traceback" not in terminal.text
    wait_until("the end of its processes", lambda: _group_is_gone(ports))


def test_the_time_can_be_limited(folder: Path) -> None:
    with demo(folder, "--seconds", "2") as terminal:
        assert terminal.read_to_end() in (0, 1)
    assert "everything is stopped" in terminal.text
