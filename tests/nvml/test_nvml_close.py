"""Closing waits for no process that outlives SIGKILL: something keeps its pipe open, as the kernel would."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import SourceError
from agent.sources import nvml_events, nvml_keeper
from agent.sources.nvml import NvmlProcess
from agent.sources.nvml_events import NvmlEvents

PATIENT_S = 30.0
_BODY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


def _until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_the_call_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_keeper, "CLOSE_S", 0.2)
    holder = tmp_path / "pid"
    nvml = NvmlProcess(argv=(sys.executable, "-c", _BODY, str(holder)), start_deadline_s=PATIENT_S)
    errors: list[SourceError] = []

    def ask() -> None:
        with pytest.raises(SourceError) as caught:
            nvml.system()
        errors.append(caught.value)

    asking = threading.Thread(target=ask)
    asking.start()
    _until(holder.exists)
    began_s = time.monotonic()
    nvml.close()
    assert time.monotonic() - began_s < PATIENT_S / 3
    assert not errors
    os.kill(int(holder.read_text()), signal.SIGKILL)
    asking.join(PATIENT_S)
    assert "was closed" in str(errors[0])
    with pytest.raises(SourceError, match="closed"):
        nvml.system()


def test_the_follower_of_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_events, "CLOSE_S", 0.2)
    holder = tmp_path / "pid"
    # Its arguments end with the library, here the file, and the beat.
    events = NvmlEvents(lambda _kind: None, argv=(sys.executable, "-c", _BODY), library=str(holder))
    events.start()
    _until(holder.exists)
    began_s = time.monotonic()
    events.close()
    assert time.monotonic() - began_s < PATIENT_S / 3
    os.kill(int(holder.read_text()), signal.SIGKILL)
    _until(lambda: events.state == "closed")
